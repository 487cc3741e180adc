// SPDX-License-Identifier: Apache-2.0

#include <signer.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/thrown.hpp"

using penstock::remote::Credentials;
using penstock::remote::HttpCall;
using penstock::remote::Secret;
using penstock::remote::Signer;
using penstock::remote::WallTime;
using penstock::test::Mentions;
using penstock::test::thrown;

namespace {

WallTime at(std::time_t seconds) {
  return std::chrono::system_clock::from_time_t(seconds);
}

std::string header(const HttpCall& call, const std::string& name) {
  for (const std::string& own : call.headers)
    if (own.starts_with(name + ": ")) return own.substr(name.size() + 2);
  return "(there is none)";
}

std::string signature(const HttpCall& call) {
  const std::string authorization = header(call, "authorization");
  return authorization.substr(authorization.rfind('=') + 1);
}

std::string signed_headers(const HttpCall& call) {
  const std::string authorization = header(call, "authorization");
  const std::size_t begin = authorization.find("SignedHeaders=") + 14;
  return authorization.substr(begin, authorization.find(',', begin) - begin);
}

HttpCall call_of(const char* method, std::string url, std::vector<std::string> headers = {},
                 std::string body = {}) {
  HttpCall call;
  call.method = method;
  call.url = std::move(url);
  call.headers = std::move(headers);
  call.body = std::move(body);
  return call;
}

// The examples of "Signature Calculations for the Authorization Header: Transferring Payload in a
// Single Chunk" in the API reference of Amazon S3. They sign the body's hash, as is done here
// without TLS; the scheme is not signed.
const WallTime kDayOfS3 = at(1369353600);  // 24 May 2013
Credentials credentials_of_s3() {
  return {"AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), {}, {}};
}

// AWS's signature test suite: region us-east-1, a service called "service".
const WallTime kDayOfSuite = at(1440938160);  // 30 August 2015, 12:36
Credentials credentials_of_suite() {
  return {"AKIDEXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), {}, {}};
}

std::string signature_of_suite(HttpCall call, const Credentials& credentials) {
  Signer("us-east-1", "service").sign(call, credentials, kDayOfSuite);
  return signature(call);
}
std::string signature_of_suite(HttpCall call) {
  return signature_of_suite(std::move(call), credentials_of_suite());
}

}  // namespace

TEST_CASE("the examples of S3's reference have their signatures") {
  Signer signer("us-east-1");
  const auto sign = [&](HttpCall call) {
    signer.sign(call, credentials_of_s3(), kDayOfS3);
    return call;
  };
  const std::string host = "http://examplebucket.s3.amazonaws.com";

  const HttpCall object = sign(call_of("GET", host + "/test.txt", {"Range: bytes=0-9"}));
  CHECK(header(object, "x-amz-date") == "20130524T000000Z");
  CHECK(header(object, "x-amz-content-sha256") ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(header(object, "authorization") ==
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  CHECK(signer.string_to_sign() ==
        "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n"
        "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");

  CHECK(signature(sign(call_of(
            "PUT", host + "/test$file.text",
            {"Date: Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class: REDUCED_REDUNDANCY"},
            "Welcome to Amazon S3."))) ==
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  CHECK(signature(sign(call_of("GET", host + "/?lifecycle"))) ==
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  CHECK(signature(sign(call_of("GET", host + "?max-keys=2&prefix=J"))) ==
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("AWS's signature test suite: headers") {
  const std::string url = "https://example.amazonaws.com/";
  const auto with = [&](std::vector<std::string> headers, const char* method = "GET") {
    return signature_of_suite(call_of(method, url, std::move(headers)));
  };
  CHECK(with({}) == "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  CHECK(with({}, "POST") == "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
  CHECK(with({"My-Header1:value2", "My-Header1:value2", "My-Header1:value1"}) ==
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea");
  CHECK(
      with({"My-Header1:value4", "My-Header1:value1", "My-Header1:value3", "My-Header1:value2"}) ==
      "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01");
  CHECK(with({"My-Header1: value1", "My-Header2: \"a   b   c\""}) ==
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
  CHECK(with({"My-Header1: value1"}, "POST") ==
        "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c");
  CHECK(with({"My-Header1: VALUE1"}, "POST") ==
        "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d");
}

TEST_CASE("AWS's signature test suite: paths and queries") {
  const auto of = [](const std::string& rest, const char* method = "GET") {
    return signature_of_suite(call_of(method, "https://example.amazonaws.com" + rest));
  };
  const std::string unreserved =
      "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  CHECK(of("/" + unreserved) == "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f");
  CHECK(of("/\xE1\x88\xB4") == "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
  CHECK(of("/%E1%88%B4") == of("/\xE1\x88\xB4"));
  CHECK(of("?Param1=value1") == "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb");
  CHECK(of("/?Param2=value2&Param1=value1") ==
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  CHECK(of("/?" + unreserved + "=" + unreserved) ==
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197");
  CHECK(of("/?\xE1\x88\xB4=bar") ==
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04");
  CHECK(of("/?Param1=value1", "POST") ==
        "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11");
  CHECK(of("/?@%23$%25%5E=&%2B=/,?><%60\";:\\|][{}", "POST") ==
        "66c82657c86e26fb25238d0e69f011edc4c6df5ae71119d7cb98ed9b87393c1e");
  CHECK(of("/?p=", "POST") == "e71688addb58a26418614085fb730ba3faa623b461c17f48f2fbdb9361b94a9b");
}

TEST_CASE("AWS's signature test suite: bodies and session tokens") {
  const std::string url = "https://example.amazonaws.com/";
  CHECK(signature_of_suite(call_of("POST", url, {"Content-Type: application/x-www-form-urlencoded"},
                                   "Param1=value1")) ==
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
  CHECK(signature_of_suite(
            call_of("POST", url, {"Content-Type: application/x-www-form-urlencoded; charset=utf8"},
                    "Param1=value1")) ==
        "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe");
  Credentials credentials = credentials_of_suite();
  credentials.session_token = Secret(
      "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSP"
      "fIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/"
      "kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcH"
      "N"
      "VXAkiY9q6d+"
      "xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+"
      "scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==");
  CHECK(signature_of_suite(call_of("POST", url), credentials) ==
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
}

TEST_CASE("over TLS the body is not signed") {
  Signer signer("us-east-1");
  HttpCall call = call_of("GET", "https://h/bucket/key");
  signer.sign(call, credentials_of_s3(), kDayOfS3);
  CHECK(header(call, "x-amz-content-sha256") == "UNSIGNED-PAYLOAD");
  CHECK(signer.canonical_request().ends_with("\nUNSIGNED-PAYLOAD"));
}

TEST_CASE("what a proxy may change is not signed") {
  HttpCall call =
      call_of("GET", "https://h/k",
              {"User-Agent: a", "Accept-Encoding: b", "If-Match: \"c\"", "Connection: d"});
  Signer("us-east-1").sign(call, credentials_of_s3(), kDayOfS3);
  CHECK(signed_headers(call) == "host;if-match;x-amz-content-sha256;x-amz-date");
}

TEST_CASE("a path keeps its dots and slashes, as keys have them") {
  Signer signer("us-east-1");
  HttpCall call = call_of("GET", "https://h/bucket//a/../b/./c%2F%7e");
  signer.sign(call, credentials_of_s3(), kDayOfS3);
  CHECK(signer.canonical_request().starts_with("GET\n/bucket//a/../b/./c%2F~\n"));
}

TEST_CASE("a call that is signed again has the new signature alone") {
  Signer signer("us-east-1");
  HttpCall call =
      call_of("GET", "http://examplebucket.s3.amazonaws.com/test.txt", {"Range: bytes=0-9"});
  Credentials with_token = credentials_of_s3();
  with_token.session_token = Secret("token");
  signer.sign(call, with_token, kDayOfS3 + std::chrono::hours(30));
  CHECK(header(call, "x-amz-security-token") == "token");
  CHECK(signed_headers(call).ends_with("x-amz-security-token"));
  signer.sign(call, credentials_of_s3(), kDayOfS3);
  CHECK(call.headers.size() == 4);
  CHECK(signature(call) == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST_CASE("the derived key follows the credentials and the day") {
  Signer kept("us-east-1");
  for (const char* id : {"A", "B"})
    for (const char* secret : {"one", "two"})
      for (const int hours : {0, 30}) {
        INFO(id << " " << secret << " " << hours);
        const Credentials credentials{id, Secret(secret), {}, {}};
        HttpCall call = call_of("GET", "https://h/k"), other = call;
        kept.sign(call, credentials, kDayOfS3 + std::chrono::hours(hours));
        Signer("us-east-1").sign(other, credentials, kDayOfS3 + std::chrono::hours(hours));
        CHECK(signature(call) == signature(other));
      }
}

TEST_CASE("anonymous calls are not signed") {
  Signer signer("us-east-1");
  HttpCall call = call_of("GET", "https://h/k", {"Range: bytes=0-9"});
  signer.sign(call, credentials_of_s3(), kDayOfS3);
  signer.sign(call, Credentials{}, kDayOfS3);
  CHECK(call.headers == std::vector<std::string>{"Range: bytes=0-9"});
}

TEST_CASE("what cannot be signed is refused") {
  Signer signer("us-east-1");
  const auto error = [&](HttpCall call) {
    return thrown<std::invalid_argument>([&] { signer.sign(call, credentials_of_s3(), kDayOfS3); });
  };
  CHECK_THAT(error(call_of("GET", "/k?hidden")), Mentions("no URL that can be signed"));
  CHECK_THAT(error(call_of("GET", "/k?hidden")), !Mentions("hidden"));
  CHECK_THAT(error(call_of("GET", "https://h/%zz")), Mentions("percent-encoded"));
  CHECK_THAT(error(call_of("GET", "https://h/?a=%")), Mentions("percent-encoded"));
  CHECK_THAT(error(call_of("GET", "https://h/", {"Range"})), Mentions("a name, \":\" and a value"));
}

TEST_CASE("a call that is signed again takes no memory of ours") {
  Signer signer("us-east-1");
  const Credentials credentials = credentials_of_s3();
  HttpCall call = call_of("GET", "https://h/bucket/key", {"Range: bytes=100-200"});
  for (int i = 0; i < 8; ++i) signer.sign(call, credentials, kDayOfS3);  // strings change places
  const std::uint64_t before = penstock::test::allocations_of_this_thread();
  for (int i = 0; i < 8; ++i) signer.sign(call, credentials, kDayOfS3 + std::chrono::seconds(i));
  CHECK(penstock::test::allocations_of_this_thread() == before);
}

TEST_CASE("a bearer token takes the place of a signature") {
  HttpCall call = call_of("GET", "https://h/k", {"Authorization: x"});
  penstock::remote::set_bearer_token(call, Secret("token"));
  CHECK(call.headers == std::vector<std::string>{"authorization: Bearer token"});
}
