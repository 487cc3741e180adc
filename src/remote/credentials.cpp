// SPDX-License-Identifier: Apache-2.0

#include "credentials.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <penstock/detail/escaped.hpp>
#include <utility>

#include "service_error.hpp"
#include "url.hpp"
#include "xml.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

using std::chrono::seconds;

constexpr std::chrono::minutes kAhead{5};
constexpr seconds kAgain{30};

void require_halves(bool has_id, bool has_secret, const char* id, const char* secret) {
  if (has_id != has_secret)
    throw std::runtime_error(std::string(has_id ? secret : id) + " is missing beside " +
                             (has_id ? id : secret));
}

/// "2026-11-27T01:02:03Z", perhaps with a fraction of a second.
WallTime read_time(std::string_view text) {
  std::tm time{};
  const std::string copy(text);
  int length = 0;
  const int fields =
      std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec, &length);
  std::string_view rest = text.substr(std::min(text.size(), static_cast<std::size_t>(length)));
  if (rest.starts_with('.'))
    rest.remove_prefix(std::min(rest.find_first_not_of(".0123456789"), rest.size()));
  if (fields != 6 || (rest != "Z" && rest != "+00:00"))
    throw std::runtime_error("\"" + detail::escaped(text.substr(0, 40)) +
                             "\" is no time at which keys expire");
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&time));
}

class GivenCredentials final : public CredentialProvider {
 public:
  explicit GivenCredentials(Credentials credentials) : credentials_(std::move(credentials)) {}
  std::string name() const override { return "the options"; }
  std::optional<Credentials> find() override { return credentials_; }

 private:
  Credentials credentials_;
};

class EnvironmentCredentials final : public CredentialProvider {
 public:
  explicit EnvironmentCredentials(Environment environment) : environment_(std::move(environment)) {}
  std::string name() const override { return "the environment (AWS_ACCESS_KEY_ID)"; }
  std::optional<Credentials> find() override {
    std::optional<std::string> id = environment_("AWS_ACCESS_KEY_ID");
    std::string secret = environment_("AWS_SECRET_ACCESS_KEY").value_or("");
    std::string token = environment_("AWS_SESSION_TOKEN").value_or("");
    const WipedAtEnd wiped_secret(secret), wiped_token(token);
    require_halves(id.has_value(), !secret.empty(), "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    if (!id) return std::nullopt;
    return Credentials{*id, Secret(secret), Secret(token), {}};
  }

 private:
  Environment environment_;
};

class ProfileCredentials final : public CredentialProvider {
 public:
  ProfileCredentials(Environment environment, std::string profile)
      : environment_(std::move(environment)), profile_(std::move(profile)) {}
  std::string name() const override {
    return "the profile of ~/.aws/credentials and ~/.aws/config";
  }
  std::optional<Credentials> find() override {
    const Profile profile(environment_, profile_);
    const Secret* const secret = profile.find("aws_secret_access_key");
    const Secret* const token = profile.find("aws_session_token");
    std::string id = profile.text("aws_access_key_id");
    const std::string of_profile = " of the profile \"" + profile.name() + "\"";
    require_halves(!id.empty(), secret != nullptr, ("aws_access_key_id" + of_profile).c_str(),
                   ("aws_secret_access_key" + of_profile).c_str());
    if (!id.empty() && !profile.find("role_arn"))
      return Credentials{std::move(id), *secret, token == nullptr ? Secret() : *token, {}};
    for (const char* way : {"role_arn", "credential_process", "sso_session", "sso_start_url"})
      if (profile.find(way) != nullptr)
        throw std::runtime_error(std::string(way) + of_profile +
                                 " is a way to get keys that is not supported: put them into the "
                                 "environment (aws configure export-credentials --format env)");
    return std::nullopt;
  }

 private:
  Environment environment_;
  std::string profile_;
};

class WebIdentityCredentials final : public CredentialProvider {
 public:
  WebIdentityCredentials(Environment environment, HttpFunction http, std::string region,
                         std::string profile)
      : environment_(std::move(environment)),
        http_(std::move(http)),
        region_(std::move(region)),
        profile_(std::move(profile)) {}
  std::string name() const override { return "web identity (AWS_WEB_IDENTITY_TOKEN_FILE)"; }

  std::optional<Credentials> find() override {
    std::string file, role, session;
    if (profile_.empty()) {
      file = environment_("AWS_WEB_IDENTITY_TOKEN_FILE").value_or("");
      role = environment_("AWS_ROLE_ARN").value_or("");
      session = environment_("AWS_ROLE_SESSION_NAME").value_or("");
      require_halves(!file.empty(), !role.empty(), "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN");
    }
    if (file.empty()) {
      const Profile profile(environment_, profile_);
      file = profile.text("web_identity_token_file");
      if (file.empty()) return std::nullopt;
      role = profile.text("role_arn");
      session = profile.text("role_session_name");
      require_halves(true, !role.empty(), "web_identity_token_file", "role_arn");
    }
    if (session.empty()) session = "penstock-" + std::to_string(::getpid());
    return ask(file, role, session);
  }

 private:
  std::string endpoint() const {
    if (const auto url = environment_("AWS_ENDPOINT_URL_STS")) return *url;
    std::optional<std::string> region = region_.empty() ? std::nullopt : std::optional(region_);
    if (!region) region = environment_("AWS_REGION");
    if (!region) region = environment_("AWS_DEFAULT_REGION");
    if (!region) return "https://sts.amazonaws.com/";
    return "https://sts." + *region + ".amazonaws.com" +
           (region->starts_with("cn-") ? ".cn/" : "/");
  }

  /// The file is read each time: its token is replaced before it expires.
  static Secret token_of(const std::string& path) {
    std::ifstream file;
    file.rdbuf()->pubsetbuf(nullptr, 0);  // A buffer would not be wiped.
    file.open(path, std::ios::binary);
    std::string token(std::size_t{1} << 16, '\0');
    const WipedAtEnd wiped(token);
    if (!file || !file.read(token.data(), static_cast<std::streamsize>(token.size())).eof())
      throw std::runtime_error("cannot read a token from " + path);
    const std::string_view text =
        std::string_view(token).substr(0, static_cast<std::size_t>(file.gcount()));
    const std::size_t end = text.find_last_not_of(" \t\r\n");
    if (end == std::string_view::npos) throw std::runtime_error(path + " has no token in it");
    return Secret(text.substr(0, end + 1));
  }

  Credentials ask(const std::string& file, const std::string& role, const std::string& session) {
    const Secret token = token_of(file);
    HttpCall call;
    const WipedAtEnd wiped_call(call.body);
    call.method = "POST";
    call.url = endpoint();
    call.headers = {"content-type: application/x-www-form-urlencoded", "accept: application/xml"};
    call.body.reserve(512 + 3 * (role.size() + session.size() + token.reveal().size()));
    call.body = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=";
    append_percent_encoded(call.body, role, false);
    append_percent_encoded(call.body += "&RoleSessionName=", session, false);
    append_percent_encoded(call.body += "&WebIdentityToken=", token.reveal(), false);
    HttpAnswer answer = http_(call);
    const WipedAtEnd wiped_answer(answer.body);
    if (answer.status != 200) throw ServiceError(printable_url(call.url), answer);
    Credentials credentials;
    try {
      read_xml(answer.body, [&](std::string_view path, std::string_view text) {
        if (path.ends_with("/Credentials/AccessKeyId")) credentials.key_id = text;
        if (path.ends_with("/Credentials/SecretAccessKey")) credentials.secret_key = Secret(text);
        if (path.ends_with("/Credentials/SessionToken")) credentials.session_token = Secret(text);
        if (path.ends_with("/Credentials/Expiration")) credentials.expires = read_time(text);
      });
    } catch (const XmlError& error) {
      throw std::runtime_error("the answer of " + printable_url(call.url) + ": " + error.what());
    }
    if (credentials.key_id.empty() || credentials.secret_key.empty() ||
        credentials.session_token.empty() || !credentials.expires)
      throw std::runtime_error("the answer of " + printable_url(call.url) +
                               " has no key, token and time");
    return credentials;
  }

  Environment environment_;
  HttpFunction http_;
  std::string region_, profile_;
};

class InstanceCredentials final : public CredentialProvider {
 public:
  InstanceCredentials(Environment environment, HttpFunction http)
      : environment_(std::move(environment)), http_(std::move(http)) {}
  std::string name() const override { return "the metadata of the EC2 instance"; }

  std::optional<Credentials> find() override {
    root_ = environment_("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or("http://169.254.169.254");
    while (root_.ends_with('/')) root_.pop_back();
    HttpCall call = call_of("/latest/api/token");
    call.method = "PUT";
    call.headers = {"x-aws-ec2-metadata-token-ttl-seconds: 300"};
    HttpAnswer token = answer_to(call);
    const WipedAtEnd wiped_token(token.body);

    const std::string folder = "/latest/meta-data/iam/security-credentials/";
    const HttpAnswer roles = get(folder, token.body);
    const std::string role = roles.body.substr(0, roles.body.find_first_of("\r\n"));
    if (role.empty()) throw std::runtime_error("the instance has no role");
    HttpAnswer keys = get(folder + percent_encoded(role, false), token.body);
    const WipedAtEnd wiped_keys(keys.body);
    return read(keys.body);
  }

 private:
  HttpCall call_of(const std::string& path) const {
    HttpCall call;
    call.url = root_ + path;
    call.timeout = std::chrono::seconds(1);
    return call;
  }
  HttpAnswer get(const std::string& path, const std::string& token) const {
    HttpCall call = call_of(path);
    call.headers = {"x-aws-ec2-metadata-token: " + token};
    const WipedAtEnd wiped(call.headers[0]);
    return answer_to(call);
  }
  HttpAnswer answer_to(const HttpCall& call) const {
    HttpAnswer answer = http_(call);
    if (answer.status != 200) throw ServiceError(printable_url(call.url), answer);
    return answer;
  }

  static Credentials read(const std::string& body) {
    nlohmann::json keys = nlohmann::json::parse(body, nullptr, false);
    const auto text = [&](const char* name) -> std::string* {
      if (!keys.is_object() || !keys.contains(name) || !keys[name].is_string()) return nullptr;
      return keys[name].get_ptr<std::string*>();
    };
    std::string* const id = text("AccessKeyId");
    std::string* const secret = text("SecretAccessKey");
    std::string* const token = text("Token");
    std::string* const time = text("Expiration");
    if (id == nullptr || secret == nullptr || token == nullptr || time == nullptr) {
      const std::string* const code = text("Code");
      throw std::runtime_error("the instance's metadata have no key, token and time" +
                               (code ? ": " + detail::escaped(*code) : std::string()));
    }
    const WipedAtEnd wiped_secret(*secret), wiped_token(*token);
    return {*id, Secret(*secret), Secret(*token), read_time(*time)};
  }

  Environment environment_;
  HttpFunction http_;
  std::string root_;
};

}  // namespace

std::unique_ptr<CredentialProvider> given_credentials(Credentials credentials) {
  if (credentials.key_id.empty() != credentials.secret_key.empty())
    throw std::invalid_argument("credentials have a key ID and a secret key, or neither");
  return std::make_unique<GivenCredentials>(std::move(credentials));
}
std::unique_ptr<CredentialProvider> environment_credentials(Environment environment) {
  return std::make_unique<EnvironmentCredentials>(std::move(environment));
}
std::unique_ptr<CredentialProvider> profile_credentials(Environment environment,
                                                        std::string profile) {
  return std::make_unique<ProfileCredentials>(std::move(environment), std::move(profile));
}
std::unique_ptr<CredentialProvider> web_identity_credentials(Environment environment,
                                                             HttpFunction http, std::string region,
                                                             std::string profile) {
  return std::make_unique<WebIdentityCredentials>(std::move(environment), std::move(http),
                                                  std::move(region), std::move(profile));
}
std::unique_ptr<CredentialProvider> instance_credentials(Environment environment,
                                                         HttpFunction http) {
  return std::make_unique<InstanceCredentials>(std::move(environment), std::move(http));
}

std::vector<std::unique_ptr<CredentialProvider>> credential_providers(
    CredentialOptions options, const Environment& environment, const HttpFunction& http) {
  const bool given =
      !options.key_id.empty() || !options.secret_key.empty() || !options.session_token.empty();
  if (options.anonymous && (given || !options.profile.empty() || options.instance_metadata))
    throw std::invalid_argument("credentials are given, and anonymous requests are asked for");
  if (given && (!options.profile.empty() || options.instance_metadata))
    throw std::invalid_argument("a key is given, and another place to get one too");
  std::vector<std::unique_ptr<CredentialProvider>> providers;
  if (options.anonymous || given) {
    providers.push_back(given_credentials({std::move(options.key_id),
                                           std::move(options.secret_key),
                                           std::move(options.session_token),
                                           {}}));
    return providers;
  }
  if (options.profile.empty()) providers.push_back(environment_credentials(environment));
  providers.push_back(web_identity_credentials(environment, http, options.region, options.profile));
  providers.push_back(profile_credentials(environment, options.profile));
  if (options.instance_metadata) providers.push_back(instance_credentials(environment, http));
  return providers;
}

CredentialChain::CredentialChain(std::vector<std::unique_ptr<CredentialProvider>> providers,
                                 WallClock clock)
    : providers_(std::move(providers)), clock_(std::move(clock)) {}

std::shared_ptr<const Credentials> CredentialChain::ask() try {
  if (chosen_ != nullptr) {
    std::optional<Credentials> found = chosen_->find();
    if (!found) throw std::runtime_error(chosen_->name() + " has no credentials any more");
    return std::make_shared<const Credentials>(std::move(*found));
  }
  std::string looked;
  for (const auto& provider : providers_) {
    std::optional<Credentials> found;
    try {
      found = provider->find();
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(provider->name() + ": " + error.what());
    }
    if (found) {
      chosen_ = provider.get();
      return std::make_shared<const Credentials>(std::move(*found));
    }
    looked += (looked.empty() ? "" : ", ") + provider->name();
  }
  throw std::runtime_error("looked at " + looked +
                           ". For data that anybody may read, ask for anonymous requests");
} catch (const std::runtime_error& error) {
  throw CredentialsError(std::string("no credentials: ") + error.what());
}

std::shared_ptr<const Credentials> CredentialChain::ready() const {
  const std::lock_guard lock(mutex_);
  return valid(clock_()) ? current_ : nullptr;
}

void CredentialChain::refused(const std::shared_ptr<const Credentials>& these) {
  const std::lock_guard lock(mutex_);
  if (current_ == these) refused_ = these;
}

WallTime CredentialChain::renew_at() const {
  const std::lock_guard lock(mutex_);
  return renew_at_;
}

std::shared_ptr<const Credentials> CredentialChain::get() {
  std::unique_lock lock(mutex_);
  const WallTime now = clock_();
  if (valid(now) && current_ != refused_ && (now < renew_at_ || asking_)) return current_;
  if (asking_) {  // Their failure would be this thread's too.
    const std::uint64_t attempt = attempts_;
    asked_.wait(lock, [&] { return attempts_ != attempt; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return current_;
  }
  asking_ = true;
  lock.unlock();
  std::shared_ptr<const Credentials> found;
  std::exception_ptr failure;
  try {
    found = ask();
    if (found->expires && *found->expires <= clock_())
      throw CredentialsError("no credentials: " + chosen_->name() + " has some that have expired");
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  asking_ = false;
  ++attempts_;
  failure_ = failure;
  const WallTime then = clock_();
  if (failure == nullptr) {
    current_ = found;
    renew_at_ = WallTime::max();
    if (found->expires) {
      const auto life = *found->expires - then;
      renew_at_ = *found->expires - std::min<WallTime::duration>(kAhead, life / 3);
    }
  } else if (valid(then) && current_ != refused_) {
    renew_at_ = then + kAgain;
    failure_ = nullptr;
  }
  asked_.notify_all();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return current_;
}

}  // namespace penstock::remote
