// SPDX-License-Identifier: Apache-2.0

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <credentials.hpp>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

using namespace penstock::remote;
using penstock::test::Mentions;
using penstock::test::TemporaryDirectory;
using penstock::test::thrown;
using std::chrono::minutes;
using std::chrono::seconds;

namespace {

template <class T>
concept Printable = requires(std::ostream& out, const T& value) {
  out << value;
};
static_assert(!Printable<Secret> && Printable<std::string>);
static_assert(!std::is_convertible_v<Secret, std::string> &&
              !std::is_convertible_v<Secret, std::string_view>);

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

HttpAnswer no_call(const HttpCall&) {
  throw std::runtime_error("no call was expected");
}

const WallTime kNow =
    std::chrono::system_clock::from_time_t(1795741200);  // 27 November 2026, 01:00

std::string time_text(WallTime time) {
  const std::time_t at = std::chrono::system_clock::to_time_t(time);
  std::tm fields{};
  ::gmtime_r(&at, &fields);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

std::string sts_answer(const std::string& id, WallTime expires) {
  return "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
         "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>" +
         id +
         "</AccessKeyId><SecretAccessKey>its/secret</SecretAccessKey><SessionToken>its token"
         "</SessionToken><Expiration>" +
         time_text(expires) +
         "</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
         "</AssumeRoleWithWebIdentityResponse>";
}

/// Credentials that expire, and a life as the test wants it.
class Expiring final : public CredentialProvider {
 public:
  std::string name() const override { return "the test"; }
  std::optional<Credentials> find() override {
    ++calls;
    if (during) during();
    if (fails) throw std::runtime_error("the server is away");
    return Credentials{"key " + std::to_string(calls.load()), Secret("secret"), {}, expires};
  }
  std::atomic<int> calls{0};
  std::atomic<bool> fails{false};
  std::function<void()> during;
  std::optional<WallTime> expires;
};

struct Renewed {
  explicit Renewed(std::optional<WallTime> expires) {
    auto provider = std::make_unique<Expiring>();
    provider->expires = expires;
    source = provider.get();
    std::vector<std::unique_ptr<CredentialProvider>> providers;
    providers.push_back(std::move(provider));
    chain = std::make_unique<CredentialChain>(std::move(providers), [this] { return now.load(); });
  }
  std::atomic<WallTime> now{kNow};
  Expiring* source;
  std::unique_ptr<CredentialChain> chain;
};

std::string key_of(CredentialOptions options, const Environment& environment,
                   const HttpFunction& http = &no_call) {
  CredentialChain chain(credential_providers(std::move(options), environment, http));
  return chain.get()->key_id;
}

std::string chain_error(CredentialOptions options, const Environment& environment,
                        const HttpFunction& http = &no_call) {
  return thrown<CredentialsError>([&] { key_of(std::move(options), environment, http); });
}

}  // namespace

TEST_CASE("a secret is in pages of its own, which core files do not have") {
  std::optional<Secret> secret(std::in_place, "a secret");
  const auto address = reinterpret_cast<std::uintptr_t>(secret->reveal().data());
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false, checked = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      inside = begin <= address && address < end;
    if (inside && line.starts_with("VmFlags:")) {
      CHECK_THAT(line, Mentions(" dd"));  // do not dump
      checked = true;
    }
  }
  CHECK(checked);
  unsigned char resident = 0;
  CHECK(::mincore(reinterpret_cast<void*>(address), 1, &resident) == 0);
  secret.reset();
  CHECK(::mincore(reinterpret_cast<void*>(address), 1, &resident) == -1);  // The pages are gone.
}

TEST_CASE("a secret is copied, moved and compared by what it holds") {
  Secret one("one"), two;
  CHECK(two.empty());
  two = one;
  CHECK(two.reveal() == "one");
  CHECK(two.reveal().data() != one.reveal().data());
  const Secret three = std::move(one);
  CHECK(three.reveal() == "one");
  two = Secret("two");
  CHECK(two.reveal() == "two");
  two = Secret();
  CHECK(two.empty());
}

TEST_CASE("a text is wiped, with what is behind its end") {
  std::string text = "a secret that is too long for a small string, and more of it";
  text.resize(40);
  const char* const bytes = text.data();
  const std::size_t capacity = text.capacity();
  wipe(text);
  CHECK(text.empty());
  REQUIRE(text.data() == bytes);
  REQUIRE(text.capacity() == capacity);
  text.resize(capacity, '.');  // What was within the capacity may be looked at.
  wipe(text);
  for (std::size_t i = 0; i < capacity; ++i) CHECK(bytes[i] == 0);
}

TEST_CASE("keys of the environment") {
  CredentialChain chain(credential_providers({},
                                             environment_of({{"AWS_ACCESS_KEY_ID", "id"},
                                                             {"AWS_SECRET_ACCESS_KEY", "secret"},
                                                             {"AWS_SESSION_TOKEN", "token"}}),
                                             &no_call));
  CHECK(chain.ready() == nullptr);
  const auto credentials = chain.get();
  CHECK(credentials->key_id == "id");
  CHECK(credentials->secret_key.reveal() == "secret");
  CHECK(credentials->session_token.reveal() == "token");
  CHECK_FALSE(credentials->anonymous());
  CHECK(chain.ready() == credentials);
  CHECK(chain.renew_at() == WallTime::max());
  CHECK(chain.get() == credentials);
}

TEST_CASE("half a key of the environment is an error") {
  CHECK_THAT(chain_error({}, environment_of({{"AWS_ACCESS_KEY_ID", "id"}})),
             Mentions("AWS_SECRET_ACCESS_KEY is missing beside AWS_ACCESS_KEY_ID"));
  const std::string error = chain_error({}, environment_of({{"AWS_SECRET_ACCESS_KEY", "hidden"}}));
  CHECK_THAT(error, Mentions("AWS_ACCESS_KEY_ID is missing"));
  CHECK_THAT(error, !Mentions("hidden"));
}

TEST_CASE("options go before the environment, and may not contradict each other") {
  const Environment environment =
      environment_of({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "secret"}});
  CredentialOptions given;
  given.key_id = "given";
  given.secret_key = Secret("hidden");
  CHECK(key_of(given, environment) == "given");
  CredentialOptions anonymous;
  anonymous.anonymous = true;
  CHECK(key_of(anonymous, environment).empty());

  const auto refused = [&](const auto& change) {
    CredentialOptions options = given;
    change(options);
    const std::string error = thrown<std::invalid_argument>(
        [&] { credential_providers(options, environment, &no_call); });
    CHECK_THAT(error, !Mentions("hidden"));
    return error;
  };
  CHECK_THAT(refused([](auto& options) { options.anonymous = true; }), Mentions("anonymous"));
  CHECK_THAT(refused([](auto& options) { options.profile = "p"; }), Mentions("another place"));
  CHECK_THAT(refused([](auto& options) { options.key_id.clear(); }), Mentions("or neither"));
  CHECK_THAT(refused([](auto& options) { options.secret_key = {}; }), Mentions("or neither"));
}

TEST_CASE("without any credentials it is said where was looked") {
  const TemporaryDirectory home;
  const std::string error = chain_error({}, environment_of({{"HOME", (home / "none").string()}}));
  CHECK_THAT(error, Mentions("AWS_ACCESS_KEY_ID"));
  CHECK_THAT(error, Mentions("AWS_WEB_IDENTITY_TOKEN_FILE"));
  CHECK_THAT(error, Mentions("~/.aws/credentials"));
  CHECK_THAT(error, Mentions("anonymous"));
}

TEST_CASE("profiles of the shared files") {
  const TemporaryDirectory directory;
  write(directory / "credentials",
        "\xEF\xBB\xBF# a comment = 1\n[default]\r\naws_access_key_id = id\r\n"
        "AWS_Secret_Access_Key=se=cr#et\n; more\n\n[ work ]\naws_access_key_id=work id\n"
        "aws_secret_access_key = work secret\naws_session_token = work token\n[half]\n"
        "aws_access_key_id = x\n");
  write(directory / "config",
        "[default]\nregion = eu-west-1\naws_secret_access_key = not this\n"
        "[profile work]  # comment\nregion=us-west-2\ns3 =\n  addressing_style = path\n"
        "[profile process]\ncredential_process = /bin/hidden\n[profile sso]\nsso_session = s\n"
        "[profile other]\nrole_arn = arn:x\nsource_profile = work\n[sso-session half]\nx = y\n");
  std::map<std::string, std::string> variables = {
      {"AWS_SHARED_CREDENTIALS_FILE", (directory / "credentials").string()},
      {"AWS_CONFIG_FILE", (directory / "config").string()}};
  const Environment environment = environment_of(variables);

  const Profile profile(environment);
  CHECK(profile.name() == "default");
  CHECK(profile.text("region") == "eu-west-1");
  CHECK(profile.text("aws_secret_access_key") == "se=cr#et");
  CHECK(profile.find("none") == nullptr);
  CHECK(Profile(environment, "work").text("addressing_style").empty());

  CHECK(key_of({}, environment) == "id");
  CredentialOptions options;
  options.profile = "work";
  CHECK(key_of(options, environment) == "work id");
  variables["AWS_PROFILE"] = "work";
  CHECK(key_of({}, environment_of(variables)) == "work id");
  variables["AWS_ACCESS_KEY_ID"] = "environment id";
  variables["AWS_SECRET_ACCESS_KEY"] = "x";
  CHECK(key_of({}, environment_of(variables)) == "environment id");
  CHECK(key_of(options, environment_of(variables)) == "work id");  // It was asked for by name.

  options.profile = "half";
  CHECK_THAT(chain_error(options, environment),
             Mentions("aws_secret_access_key of the profile \"half\" is missing"));
  options.profile = "nobody";
  CHECK_THAT(chain_error(options, environment), Mentions("the profile \"nobody\" is neither in"));
  options.profile = "process";
  CHECK_THAT(chain_error(options, environment), Mentions("credential_process of the profile"));
  CHECK_THAT(chain_error(options, environment), !Mentions("hidden"));
  options.profile = "sso";
  CHECK_THAT(chain_error(options, environment), Mentions("sso_session of the profile"));
  options.profile = "other";
  CHECK_THAT(chain_error(options, environment), Mentions("role_arn of the profile"));
}

TEST_CASE("shared files in the home directory, and some that are none") {
  const TemporaryDirectory home;
  std::filesystem::create_directory(home / ".aws");
  const Environment environment =
      environment_of({{"HOME", (home / ".aws").parent_path().string()}});
  const auto path = home / ".aws/credentials";
  write(path, "[default]\naws_access_key_id=id\naws_secret_access_key=secret");
  CHECK(key_of({}, environment) == "id");
  for (const char* text : {"[default]\nhidden\n", "hidden = 1\n", "[default\nhidden=1"}) {
    write(path, text);
    const std::string error = chain_error({}, environment);
    CHECK_THAT(error, Mentions(path.string() + ": line "));
    CHECK_THAT(error, !Mentions("hidden"));
  }
  write(path, std::string((1 << 20) + 1, '#'));
  CHECK_THAT(chain_error({}, environment), Mentions("more than 1 MiB"));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  CHECK_THAT(chain_error({}, environment), Mentions("Is a directory"));
}

TEST_CASE("web identity: a token of a file for keys of a role") {
  const TemporaryDirectory directory;
  write(directory / "token", "to+ken/1\n");
  std::map<std::string, std::string> variables = {
      {"AWS_WEB_IDENTITY_TOKEN_FILE", (directory / "token").string()},
      {"AWS_ROLE_ARN", "arn:aws:iam::1:role/r"},
      {"AWS_ROLE_SESSION_NAME", "s"},
      {"AWS_REGION", "eu-west-1"}};
  std::vector<HttpCall> calls;
  const HttpFunction http = [&](const HttpCall& call) {
    calls.push_back(call);
    return HttpAnswer{200, sts_answer("its id", kNow + std::chrono::hours(1))};
  };
  const auto found = [&] {
    return web_identity_credentials(environment_of(variables), http)->find().value();
  };
  const Credentials credentials = found();
  CHECK(credentials.key_id == "its id");
  CHECK(credentials.secret_key.reveal() == "its/secret");
  CHECK(credentials.session_token.reveal() == "its token");
  CHECK(credentials.expires == kNow + std::chrono::hours(1));
  CHECK(calls[0].method == "POST");
  CHECK(calls[0].url == "https://sts.eu-west-1.amazonaws.com/");
  CHECK(calls[0].body ==
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%"
        "2Fr"
        "&RoleSessionName=s&WebIdentityToken=to%2Bken%2F1");

  // The token is read again, and the place may be another one.
  write(directory / "token", "second");
  variables.erase("AWS_REGION");
  found();
  CHECK(calls[1].url == "https://sts.amazonaws.com/");
  CHECK_THAT(calls[1].body, Mentions("WebIdentityToken=second"));
  variables["AWS_ENDPOINT_URL_STS"] = "https://sts.example";
  found();
  CHECK(calls[2].url == "https://sts.example");

  variables.erase("AWS_ROLE_ARN");
  CHECK_THAT(thrown<std::runtime_error>(found), Mentions("AWS_ROLE_ARN is missing"));
  variables["AWS_ROLE_ARN"] = "arn";
  write(directory / "token", " \n");
  CHECK_THAT(thrown<std::runtime_error>(found), Mentions("has no token in it"));
  std::filesystem::remove(directory / "token");
  CHECK_THAT(thrown<std::runtime_error>(found), Mentions("cannot read a token"));
  CHECK(calls.size() == 3);
}

TEST_CASE("web identity of a profile") {
  const TemporaryDirectory directory;
  write(directory / "token", "token");
  write(directory / "config", "[profile p]\nrole_arn = arn\nweb_identity_token_file = " +
                                  (directory / "token").string() + "\n");
  CredentialOptions options;
  options.profile = "p";
  options.region = "us-west-2";
  CHECK(key_of(options, environment_of({{"AWS_CONFIG_FILE", (directory / "config").string()}}),
               [](const HttpCall& call) {
                 CHECK(call.url == "https://sts.us-west-2.amazonaws.com/");
                 return HttpAnswer{200, sts_answer("its id", WallTime::max() - minutes(1))};
               }) == "its id");
}

TEST_CASE("what STS says is told, and no secret") {
  const TemporaryDirectory directory;
  write(directory / "token", "hidden");
  const Environment environment = environment_of(
      {{"AWS_WEB_IDENTITY_TOKEN_FILE", (directory / "token").string()}, {"AWS_ROLE_ARN", "arn"}});
  const auto error = [&](int status, const std::string& body) {
    const std::string text = chain_error({}, environment, [&](const HttpCall&) {
      return HttpAnswer{status, body};
    });
    CHECK_THAT(text, Mentions("no credentials: web identity"));
    CHECK_THAT(text, !Mentions("hidden"));
    return text;
  };
  CHECK_THAT(error(403,
                   "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
                   "<Message>Not authorized</Message></Error></ErrorResponse>"),
             Mentions("says 403, AccessDenied: Not authorized"));
  CHECK_THAT(error(502, "<html>Bad gateway"),
             Mentions("https://sts.amazonaws.com/: the server says 502"));
  CHECK_THAT(error(200, "<html>hidden"),
             Mentions("the answer of https://sts.amazonaws.com/: line 1"));
  CHECK_THAT(error(200, "<a/>"), Mentions("has no key, token and time"));
  CHECK_THAT(error(200, "<R><Credentials><Expiration>soon</Expiration></Credentials></R>"),
             Mentions("\"soon\" is no time"));
  CHECK_THAT(error(200, sts_answer("id", WallTime{})), Mentions("has some that have expired"));
}

TEST_CASE("a transfer that fails is told, with the provider") {
  const TemporaryDirectory directory;
  write(directory / "token", "hidden");
  CHECK_THAT(
      chain_error({},
                  environment_of({{"AWS_WEB_IDENTITY_TOKEN_FILE", (directory / "token").string()},
                                  {"AWS_ROLE_ARN", "arn"}}),
                  [](const HttpCall&) -> HttpAnswer { throw std::runtime_error("no route"); }),
      Mentions("web identity (AWS_WEB_IDENTITY_TOKEN_FILE): no route"));
}

TEST_CASE("the role of an instance, by version 2 of its metadata service") {
  std::vector<std::string> calls;
  std::string keys = R"({"Code":"Success","AccessKeyId":"id","SecretAccessKey":"secret",)"
                     R"("Token":"token","Expiration":"2026-11-27T02:00:00.5Z"})";
  const HttpFunction http = [&](const HttpCall& call) -> HttpAnswer {
    calls.push_back(call.method + " " + call.url);
    CHECK(call.timeout == seconds(1));
    REQUIRE(call.headers.size() == 1);
    if (call.method == "PUT") {
      CHECK(call.headers[0] == "x-aws-ec2-metadata-token-ttl-seconds: 300");
      return {200, "session"};
    }
    CHECK(call.headers[0] == "x-aws-ec2-metadata-token: session");
    if (call.url.ends_with("/")) return {200, "my role\n"};
    return {200, keys};
  };
  const auto found = [&] { return instance_credentials(environment_of({}), http)->find().value(); };
  const Credentials credentials = found();
  CHECK(calls ==
        std::vector<std::string>{
            "PUT http://169.254.169.254/latest/api/token",
            "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/",
            "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/my%20role"});
  CHECK(credentials.key_id == "id");
  CHECK(credentials.secret_key.reveal() == "secret");
  CHECK(credentials.session_token.reveal() == "token");
  CHECK(credentials.expires == kNow + minutes(60));
  for (const char* wrong : {"", "hidden", "[]", "{}", R"({"AccessKeyId":1})",
                            R"({"Code":"Failed","SecretAccessKey":"hidden"})"}) {
    keys = wrong;
    const std::string error = thrown<std::runtime_error>(found);
    CHECK_THAT(error, Mentions("no key, token and time"));
    CHECK_THAT(error, !Mentions("hidden"));
  }
}

TEST_CASE("an instance is asked only if that is wanted, and last") {
  const TemporaryDirectory home;
  const Environment environment = environment_of({{"HOME", (home / "").string()}});
  int calls = 0;
  const HttpFunction http = [&](const HttpCall&) -> HttpAnswer {
    return ++calls, HttpAnswer{404, ""};
  };
  chain_error({}, environment, http);
  CHECK(calls == 0);
  CredentialOptions options;
  options.instance_metadata = true;
  CHECK_THAT(chain_error(options, environment, http),
             Mentions("the metadata of the EC2 instance: http://169.254.169.254/latest/api/token: "
                      "the server says 404"));
  CHECK(calls == 1);
}

TEST_CASE("credentials are renewed before they expire") {
  Renewed renewed(kNow + minutes(60));
  CHECK(renewed.chain->get()->key_id == "key 1");
  renewed.now = kNow + minutes(54) + seconds(59);
  CHECK(renewed.chain->get()->key_id == "key 1");
  renewed.now = kNow + minutes(55);
  CHECK(renewed.chain->renew_at() == renewed.now.load());
  CHECK(renewed.chain->ready()->key_id == "key 1");  // They are still valid.
  renewed.source->expires = kNow + minutes(61);      // 6 minutes: for two thirds of them
  CHECK(renewed.chain->get()->key_id == "key 2");
  renewed.now = kNow + minutes(58) + seconds(59);
  CHECK(renewed.chain->get()->key_id == "key 2");
  renewed.now = kNow + minutes(59);
  CHECK(renewed.chain->get()->key_id == "key 3");
}

TEST_CASE("the old credentials serve until they expire where a renewal fails") {
  Renewed renewed(kNow + minutes(60));
  renewed.chain->get();
  renewed.source->fails = true;
  renewed.now = kNow + minutes(56);
  CHECK(renewed.chain->get()->key_id == "key 1");
  CHECK(renewed.source->calls == 2);
  renewed.now = kNow + minutes(56) + seconds(29);
  CHECK(renewed.chain->get()->key_id == "key 1");
  CHECK(renewed.source->calls == 2);  // not with each call
  renewed.now = kNow + minutes(56) + seconds(30);
  CHECK(renewed.chain->get()->key_id == "key 1");
  CHECK(renewed.source->calls == 3);
  renewed.now = kNow + minutes(60);
  CHECK(renewed.chain->ready() == nullptr);
  CHECK_THAT(thrown<CredentialsError>([&] { renewed.chain->get(); }),
             Mentions("no credentials: the server is away"));
  renewed.source->fails = false;
  renewed.source->expires = kNow + minutes(120);
  CHECK(renewed.chain->get()->key_id == "key 5");
}

TEST_CASE("one thread renews, and others go on with what is valid") {
  Renewed renewed(kNow + minutes(60));
  renewed.chain->get();
  renewed.now = kNow + minutes(56);
  std::string meanwhile;
  bool ready = false;
  renewed.source->during = [&] {
    std::thread([&] {
      meanwhile = renewed.chain->get()->key_id;
      ready = renewed.chain->ready() != nullptr;
    }).join();
    renewed.source->expires = kNow + minutes(120);
  };
  CHECK(renewed.chain->get()->key_id == "key 2");
  CHECK(meanwhile == "key 1");
  CHECK(ready);
}

TEST_CASE("threads that wait for the first credentials ask once, and fail together") {
  for (const bool fails : {false, true}) {
    Renewed renewed(std::nullopt);
    renewed.source->fails = fails;
    std::atomic<int> begun{0}, got{0}, failed{0};
    // Whoever asks goes on when all have begun, and some time after.
    renewed.source->during = [&] {
      while (begun < 4) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        ++begun;
        try {
          got += renewed.chain->get()->key_id == "key 1" ? 1 : 0;
        } catch (const CredentialsError&) {
          ++failed;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(got == (fails ? 0 : 4));
    CHECK(failed == (fails ? 4 : 0));
    if (!fails) CHECK(renewed.source->calls == 1);
  }
}

TEST_CASE("the provider that had credentials is asked from then on") {
  auto first = std::make_unique<Expiring>(), second = std::make_unique<Expiring>();
  Expiring* const asked = first.get();
  Expiring* const other = second.get();
  asked->expires = kNow + minutes(60);
  std::vector<std::unique_ptr<CredentialProvider>> providers;
  providers.push_back(std::move(first));
  providers.push_back(std::move(second));
  std::atomic<WallTime> now{kNow};
  CredentialChain chain(std::move(providers), [&] { return now.load(); });
  chain.get();
  asked->fails = true;
  now = kNow + minutes(60);
  CHECK_THAT(thrown<CredentialsError>([&] { chain.get(); }), Mentions("the server is away"));
  CHECK(other->calls == 0);
}
