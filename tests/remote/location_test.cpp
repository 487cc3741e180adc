// SPDX-License-Identifier: Apache-2.0

#include <location.hpp>
#include <stdexcept>
#include <string>
#include <url.hpp>

#include "support/thrown.hpp"

using penstock::remote::Addressing;
using penstock::remote::Location;
using penstock::remote::LocationOptions;
using penstock::remote::Service;
using penstock::test::Mentions;
using penstock::test::thrown;

namespace {

std::string url_of(const char* text, const LocationOptions& options = {}) {
  return Location::parse(text, options).url();
}

std::string parse_error(const std::string& text, const LocationOptions& options = {}) {
  return thrown<std::invalid_argument>([&] { Location::parse(text, options); });
}

}  // namespace

TEST_CASE("a key is encoded by the rules of S3") {
  using penstock::remote::percent_encoded;
  CHECK(percent_encoded("AZaz09-_.~", false) == "AZaz09-_.~");
  CHECK(percent_encoded("a/b", true) == "a/b");
  CHECK(percent_encoded("a/b", false) == "a%2Fb");
  CHECK(percent_encoded(" !\"#$%&'()*+,:;<=>?@[]^`{|}\\", true) ==
        "%20%21%22%23%24%25%26%27%28%29%2A%2B%2C%3A%3B%3C%3D%3E%3F%40%5B%5D%5E%60%7B%7C%7D%5C");
  CHECK(percent_encoded("\xC3\xA4\xFF\n\x7F", true) == "%C3%A4%FF%0A%7F");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(penstock::remote::percent_decoded(percent_encoded(all, false)) == all);
}

TEST_CASE("percent-encoding is undone, or it is none") {
  using penstock::remote::percent_decoded;
  CHECK(percent_decoded("a%2Fb%c3%A4") == "a/b\xC3\xA4");
  CHECK(percent_decoded("a+b", true) == "a b");
  CHECK(percent_decoded("a+b") == "a+b");
  CHECK(percent_decoded("%2B", true) == "+");
  for (const char* text : {"%", "%2", "a%", "%zz", "%2g", "%-1", "% 1"})
    CHECK_FALSE(percent_decoded(text).has_value());
}

TEST_CASE("an object of S3 has its bucket in the host's name") {
  const Location location = Location::parse("s3://my-bucket/train/a b+c.jpg");
  CHECK(location.service() == Service::s3);
  CHECK(location.bucket() == "my-bucket");
  CHECK(location.key() == "train/a b+c.jpg");
  CHECK(location.region() == "us-east-1");
  CHECK(location.is_encrypted());
  CHECK(location.url() == "https://my-bucket.s3.us-east-1.amazonaws.com/train/a%20b%2Bc.jpg");
  CHECK(url_of("S3://my-bucket/k", {.region = "eu-west-3"}) ==
        "https://my-bucket.s3.eu-west-3.amazonaws.com/k");
  CHECK(url_of("s3://my-bucket/k", {.region = "cn-north-1"}) ==
        "https://my-bucket.s3.cn-north-1.amazonaws.com.cn/k");
}

TEST_CASE("a bucket that is no part of a host's name is in the path") {
  CHECK(url_of("s3://my.bucket/k") == "https://s3.us-east-1.amazonaws.com/my.bucket/k");
  CHECK(url_of("s3://My_Bucket/k") == "https://s3.us-east-1.amazonaws.com/My_Bucket/k");
  CHECK(url_of("s3://my-bucket-/k") == "https://s3.us-east-1.amazonaws.com/my-bucket-/k");
  CHECK(url_of("s3://my-bucket/k", {.addressing = Addressing::path}) ==
        "https://s3.us-east-1.amazonaws.com/my-bucket/k");
  CHECK_THAT(parse_error("s3://my.bucket/k", {.addressing = Addressing::virtual_host}),
             Mentions("use the path style"));
}

TEST_CASE("Google Cloud Storage has the bucket in the path") {
  const Location location = Location::parse("gs://my-bucket/a/b");
  CHECK(location.service() == Service::gcs);
  CHECK(location.region() == "auto");
  CHECK(location.url() == "https://storage.googleapis.com/my-bucket/a/b");
  CHECK(url_of("gs://my-bucket/a", {.addressing = Addressing::virtual_host}) ==
        "https://my-bucket.storage.googleapis.com/a");
}

TEST_CASE("an endpoint of one's own") {
  const auto at = [](const char* endpoint, Addressing addressing = Addressing::automatic) {
    return url_of("s3://bucket/key", {.endpoint = endpoint, .addressing = addressing});
  };
  CHECK(at("http://127.0.0.1:9000") == "http://127.0.0.1:9000/bucket/key");
  CHECK(at("https://MinIO.example/") == "https://minio.example/bucket/key");
  CHECK(at("https://ceph.example/gate/way/") == "https://ceph.example/gate/way/bucket/key");
  CHECK(at("https://ceph.example", Addressing::virtual_host) == "https://bucket.ceph.example/key");
  CHECK(at("http://[::1]:9000") == "http://[::1]:9000/bucket/key");
  // The header Host is without the scheme's own port, and what is signed must be the same.
  CHECK(at("https://a.example:443") == "https://a.example/bucket/key");
  CHECK(at("http://a.example:80") == "http://a.example/bucket/key");
  CHECK(at("https://a.example:80") == "https://a.example:80/bucket/key");
  CHECK_FALSE(Location::parse("s3://bucket/k", {.endpoint = "http://a.example"}).is_encrypted());
}

TEST_CASE("an endpoint that is none is refused") {
  const auto error = [](const char* endpoint, Addressing addressing = Addressing::automatic) {
    return parse_error("s3://bucket/key", {.endpoint = endpoint, .addressing = addressing});
  };
  CHECK_THAT(error("minio:9000"), Mentions("\"minio:9000\": an endpoint begins with https://"));
  CHECK_THAT(error("ftp://minio"), Mentions("an endpoint begins with https://"));
  CHECK_THAT(error("https://"), Mentions("the name of a host is missing"));
  CHECK_THAT(error("https://a b"), Mentions("no name of a host"));
  CHECK_THAT(error("https://[::1"), Mentions("no \"]\""));
  CHECK_THAT(error("https://[::g]"), Mentions("no address of a host"));
  CHECK_THAT(error("https://a/?x=1"), Mentions("an endpoint has no query"));
  for (const char* port : {"0", "65536", "9x", "-1", "+1", "99999999999"})
    CHECK_THAT(error((std::string("https://a:") + port).c_str()), Mentions("from 1 to 65535"));
  CHECK_THAT(error("http://127.0.0.1:9000", Addressing::virtual_host),
             Mentions("use the path style"));
  CHECK_THAT(error("http://[::1]", Addressing::virtual_host), Mentions("use the path style"));
  const std::string with_user = error("https://user:hidden@minio");
  CHECK_THAT(with_user, Mentions("user info does not belong into an endpoint"));
  CHECK_THAT(with_user, !Mentions("hidden"));
}

TEST_CASE("a key behind s3:// is taken as it is") {
  CHECK(Location::parse("s3://bucket/a%20b?c#d").key() == "a%20b?c#d");
  CHECK(url_of("s3://bucket/a%20b?c#d", {.endpoint = "http://h"}) ==
        "http://h/bucket/a%2520b%3Fc%23d");
  CHECK(url_of("s3://bucket//a/../b/", {.endpoint = "http://h"}) == "http://h/bucket//a/../b/");
}

TEST_CASE("what is no bucket or key is refused") {
  CHECK_THAT(parse_error("s3:///key"), Mentions("the name of the bucket is missing"));
  CHECK_THAT(parse_error("s3://ab/key"), Mentions("3 to 255 characters, and this has 2"));
  CHECK_THAT(parse_error("s3://a b/key"), Mentions("\"s3://a b/key\": the name of a bucket has"));
  CHECK_THAT(parse_error("s3://..../key"), Mentions("no \".\" at an end"));
  CHECK_THAT(parse_error("s3://a..b/key"), Mentions("no \".\" at an end or beside another"));
  CHECK_THAT(parse_error("s3://arn:aws:s3:::b/key"), Mentions("letters, digits"));
  CHECK_THAT(parse_error("s3://bucket/" + std::string(1025, 'k')), Mentions("and this has 1025"));
  CHECK_THAT(parse_error(std::string("s3://bucket/a\0b", 15)), Mentions("no character 0"));
  CHECK_THAT(parse_error("s3://bucket/k", {.region = "eu/west"}), Mentions("no name of a region"));
  CHECK_THAT(parse_error("azure://bucket/k"), Mentions("must begin with s3://, gs://"));
  CHECK_THAT(parse_error("/data/train.tar"), Mentions("\"/data/train.tar\": it must begin with"));
  CHECK_THAT(parse_error("https://a/" + std::string(20000, 'k')), Mentions("at most 16384"));
  const std::string with_user = parse_error("s3://AKID:hidden@bucket/key");
  CHECK_THAT(with_user, Mentions("\"s3://***@bucket/key\": user info does not belong into it"));
  CHECK_THAT(thrown<std::invalid_argument>([] { Location::parse("s3://bucket").url(); }),
             Mentions("\"s3://bucket/\": the key of an object is missing"));
}

TEST_CASE("another object of the same bucket") {
  const Location prefix = Location::parse("s3://bucket/train/", {.endpoint = "http://h"});
  CHECK(prefix.object("train/\xC3\xA4").url() == "http://h/bucket/train/%C3%A4");
  CHECK_THAT(thrown<std::invalid_argument>([&] { prefix.object(std::string(2000, 'k')); }),
             Mentions("at most 1024 bytes"));
  CHECK_THAT(thrown<std::invalid_argument>([] { Location::parse("https://h/a").object("b"); }),
             Mentions("no other keys"));
}

TEST_CASE("a page of a listing") {
  const Location path = Location::parse("s3://bucket/a b/", {.endpoint = "http://h"});
  CHECK(path.listing_url() ==
        "http://h/bucket?encoding-type=url&list-type=2&max-keys=1000&prefix=a%20b%2F");
  CHECK(path.listing_url({.token = "1+/=", .delimiter = "/", .most_keys = 7}) ==
        "http://h/bucket?continuation-token=1%2B%2F%3D&delimiter=%2F&encoding-type=url&"
        "list-type=2&max-keys=7&prefix=a%20b%2F");
  CHECK(Location::parse("s3://bucket").listing_url() ==
        "https://bucket.s3.us-east-1.amazonaws.com/?encoding-type=url&list-type=2&"
        "max-keys=1000&prefix=");
  CHECK_THAT(thrown<std::invalid_argument>([] { Location::parse("https://h/a/").listing_url(); }),
             Mentions("http servers have none"));
}

TEST_CASE("a URL of http is taken as it is") {
  CHECK(url_of("https://Host.example:443/a%20b/../c?x=1&y=%2f") ==
        "https://host.example/a%20b/../c?x=1&y=%2f");
  CHECK(url_of("HTTP://host") == "http://host/");
  CHECK(url_of("http://host?x") == "http://host/?x");
  CHECK(url_of("http://host/\xC3\xA4 b") == "http://host/%C3%A4%20b");
  CHECK(url_of("https://user:word@host/a") == "https://user:word@host/a");
  CHECK_THAT(parse_error("http://host/100%"), Mentions("two hexadecimal digits"));
  CHECK_THAT(parse_error("http://host/a#b"), Mentions("write %23"));
  CHECK_THAT(parse_error("http://host/a\nb"),
             Mentions("\"http://host/a\\x0Ab\": a URL has no control"));
  CHECK_THAT(parse_error("http:///a"), Mentions("the name of a host is missing behind http://"));
}

TEST_CASE("a message shows neither user info nor a query") {
  CHECK(Location::parse("https://user:word@Host:8443/a?X-Amz-Signature=beef").printable() ==
        "https://host:8443/a");
  CHECK(Location::parse("https://h/a@b").printable() == "https://h/a@b");
  CHECK(Location::parse("s3://bucket/a\nb\xC3\xA4").printable() == "s3://bucket/a\\x0Ab\xC3\xA4");
  // Also where the text is wrong, and it cannot be known what is what.
  for (const char* text :
       {"https://user:hidden@host:x/a?hidden", "https://user:hid/hidden@host/a%?hidden",
        "user:hidden@host/a", "ftp://user:hidden@host/a", "s3://a:hidden@b/k",
        "https://h/a%?sig=hidden", "https://h:x/#hidden", "https://:hidden@", "http:/hidden@/a",
        "hidden@a://user@b"}) {
    INFO(text);
    const std::string error = parse_error(text);
    CHECK(error != "(nothing was thrown)");
    CHECK_THAT(error, !Mentions("hidden"));
  }
}
