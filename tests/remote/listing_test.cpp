// SPDX-License-Identifier: Apache-2.0

#include <listing.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <penstock/file_folder.hpp>
#include <service_error.hpp>
#include <stdexcept>
#include <string>
#include <vector>
#include <xml.hpp>

#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

using namespace penstock::remote;
using penstock::FileFolder;
using penstock::test::Mentions;
using penstock::test::TemporaryDirectory;
using penstock::test::thrown;

namespace {

std::string listing(const std::string& inside) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
         "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>" +
         inside + "</ListBucketResult>";
}

std::string object(const std::string& key, const std::string& size = "1") {
  return "<Contents><Key>" + key + "</Key><Size>" + size + "</Size></Contents>";
}

std::string more(const std::string& token) {
  return "<IsTruncated>true</IsTruncated><NextContinuationToken>" + token +
         "</NextContinuationToken>";
}

std::string page_error(const std::string& xml) {
  return thrown<XmlError>([&] { read_listing_page(xml); });
}

std::vector<std::string> keys_of(const std::string& xml) {
  std::vector<std::string> keys;
  for (const ListedObject& object : read_listing_page(xml).objects) keys.push_back(object.key);
  return keys;
}

using Strings = std::vector<std::string>;

/// Answers one page after the other.
struct Pages {
  std::vector<HttpAnswer> answers;
  Strings urls;
  Strings keys;

  void list(const char* prefix, const ListingLimits& limits = {}) {
    list_objects(
        Location::parse(prefix, {.endpoint = "http://h"}),
        [&](HttpCall& call) {
          urls.push_back(call.url);
          return answers.at(urls.size() - 1);
        },
        [&](const ListingPage& page) {
          for (const ListedObject& object : page.objects) keys.push_back(object.key);
        },
        limits);
  }
  std::string error(const char* prefix, const ListingLimits& limits = {}) {
    return thrown<std::runtime_error>([&] { list(prefix, limits); });
  }
};

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a page of S3 is read") {
  const ListingPage page = read_listing_page(
      listing("<Prefix>a/</Prefix><KeyCount>2</KeyCount><MaxKeys>2</MaxKeys><EncodingType>url</"
              "EncodingType>"
              "<IsTruncated>true</IsTruncated><Contents><Key>a/x%20y%2Bz%C3%A4.jpg</Key>"
              "<LastModified>2026-11-27T00:00:00.000Z</LastModified><ETag>&quot;9e1&quot;</ETag>"
              "<Size>18446744073709551615</Size><Owner><ID>1</ID></Owner></Contents>"
              "<Contents><Size>0</Size><Key>a/b+c</Key></Contents>"
              "<CommonPrefixes><Prefix>a/d%2F</Prefix></CommonPrefixes>"
              "<NextContinuationToken>1/+=&amp;</NextContinuationToken>"));
  REQUIRE(page.objects.size() == 2);
  CHECK(page.objects[0].key == "a/x y+z\xC3\xA4.jpg");
  CHECK(page.objects[0].bytes == UINT64_MAX);
  CHECK(page.objects[0].etag == "9e1");
  CHECK(page.objects[1].key == "a/b c");  // A plus of the key itself would be %2B.
  CHECK(page.objects[1].bytes == 0);
  CHECK(page.objects[1].etag.empty());
  CHECK(page.prefixes == Strings{"a/d/"});
  CHECK(page.next == "1/+=&");
}

TEST_CASE("a page without an encoding has its keys as they are") {
  CHECK(keys_of(listing(object("a%20b+c &amp; &#x4E;&lt;\xC3\xA4"))) ==
        Strings{"a%20b+c & N<\xC3\xA4"});
  CHECK(keys_of("<ListBucketResult>" + object("a%zz") + "</ListBucketResult>") == Strings{"a%zz"});
  CHECK(keys_of("<s3:ListBucketResult xmlns:s3=\"x\"><s3:Contents><s3:Key>k</s3:Key>"
                "<s3:Size>1</s3:Size></s3:Contents></s3:ListBucketResult>") == Strings{"k"});
  CHECK(keys_of(listing("")).empty());
  // The encoding may be told behind the keys.
  CHECK(keys_of(listing(object("a%20b") + "<EncodingType>url</EncodingType>")) == Strings{"a b"});
}

TEST_CASE("the last page has no token, whatever it says") {
  CHECK(
      read_listing_page(listing("<NextContinuationToken>t</NextContinuationToken>")).next.empty());
  CHECK(read_listing_page(listing("<IsTruncated>false</IsTruncated>")).next.empty());
}

TEST_CASE("what is no page is an error that names the place") {
  CHECK_THAT(page_error(""), Mentions("line 1, column 1: no element found"));
  CHECK_THAT(page_error("<ListBucketResult>"), Mentions("line 1, column 19: no element found"));
  CHECK_THAT(page_error(listing("\n  <Contents></Key>")),
             Mentions("line 3, column 15: mismatched tag"));
  CHECK_THAT(page_error(listing("<Key>\x01</Key>")), Mentions("not well-formed"));
  CHECK_THAT(page_error(listing("<Key>\xFF</Key>")), Mentions("not well-formed"));
  CHECK_THAT(page_error(listing("&none;")), Mentions("undefined entity"));
  CHECK_THAT(page_error("<html><body>Sign in</body></html>"), Mentions("no listing but <html>"));
  CHECK_THAT(page_error(listing("<Contents><Size>1</Size></Contents>")),
             Mentions("an object without a Key"));
  CHECK_THAT(page_error(listing("<Contents><Key/><Size>1</Size></Contents>")),
             Mentions("an object without a Key"));
  CHECK_THAT(page_error(listing("\n" + object("a") + object("b", "x"))),
             Mentions("line 3, column 84: an object whose Size is no number"));
  for (const char* size : {"", "-1", "+1", "1.5", "18446744073709551616", "1 "})
    CHECK_THAT(page_error(listing(object("k", size))), Mentions("Size is no number of bytes"));
  CHECK_THAT(page_error(listing("<Contents><Key>a</Key></Contents>")), Mentions("Size"));
  CHECK_THAT(page_error(listing("<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>")),
             Mentions("two elements Key"));
  CHECK_THAT(page_error(listing("<IsTruncated>yes</IsTruncated>")),
             Mentions("neither true nor false"));
  CHECK_THAT(page_error(listing("<IsTruncated>true</IsTruncated>")),
             Mentions("has no NextContinuationToken"));
  CHECK_THAT(page_error(listing("<EncodingType>base64</EncodingType>")), Mentions("\"base64\""));
  CHECK_THAT(page_error(listing("<EncodingType>url</EncodingType>" + object("a%2"))),
             Mentions("\"a%2\""));
}

TEST_CASE("a page cannot fill the memory by entities or depth") {
  CHECK_THAT(page_error("<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult>&b;</ListBucketResult>"),
             Mentions("a document type"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  CHECK_THAT(page_error(deep), Mentions("column 49: elements are nested too deep"));
}

TEST_CASE("a page of more than one part of the parser") {
  std::string inside;
  for (int i = 0; i < 50'000; ++i) inside += object("k" + std::to_string(i), std::to_string(i));
  const ListingPage page = read_listing_page(listing(inside));
  REQUIRE(page.objects.size() == 50'000);
  for (std::size_t i = 0; i < 50'000; ++i) {
    REQUIRE(page.objects[i].key == "k" + std::to_string(i));
    REQUIRE(page.objects[i].bytes == i);
  }
}

TEST_CASE("pages follow each other by their tokens") {
  Pages pages;
  pages.answers = {{200, listing(object("a/1") + more("t +/"))},
                   {200, listing(more("u"))},
                   {200, listing(object("a/2") + object("a/"))}};
  pages.list("s3://bucket/a/");
  CHECK(pages.keys == Strings{"a/1", "a/2", "a/"});
  const std::string rest = "encoding-type=url&list-type=2&max-keys=1000&prefix=a%2F";
  CHECK(pages.urls == Strings{"http://h/bucket?" + rest,
                              "http://h/bucket?continuation-token=t%20%2B%2F&" + rest,
                              "http://h/bucket?continuation-token=u&" + rest});
}

TEST_CASE("a listing that is wrong ends with an error that names the page") {
  CHECK_THAT(
      (Pages{{{200, listing(object("a/1") + more("t"))}, {200, "<ListBucketResult>"}}, {}, {}}
           .error("s3://bucket/a/")),
      Mentions("the listing of s3://bucket/a/, page 2: line 1, column 19: no element found"));
  CHECK_THAT((Pages{{{200, listing(object("b/1"))}}, {}, {}}.error("s3://bucket/a/")),
             Mentions("page 1: the key \"b/1\" is not below the prefix"));
  CHECK_THAT((Pages{{{200, listing(object("1") + more("t"))},
                     {200, listing(object("2") + more("u"))},
                     {200, listing(object("3") + more("t"))}},
                    {},
                    {}}
                  .error("s3://bucket")),
             Mentions("page 3: its NextContinuationToken is one of an earlier page"));
  CHECK_THAT((Pages{{{200, listing(object("1") + object("2") + object("3"))}}, {}, {}}.error(
                 "gs://bucket", {.objects = 2})),
             Mentions("the listing of gs://bucket/, page 1: there are more than 2 objects"));
  CHECK_THAT(
      (Pages{{{200, listing(object("1"))}}, {}, {}}.error("s3://bucket", {.page_bytes = 100})),
      Mentions("bytes, and may have 100"));
  CHECK_THAT(
      (Pages{{{403, "<Error><Code>AccessDenied</Code><Message>Access\n Denied</Message></Error>"}},
             {},
             {}}
           .error("s3://bucket/a")),
      Mentions("the listing of s3://bucket/a: the server says 403, AccessDenied: "
               "Access\\x0A Denied"));
  Pages endless;
  for (int i = 0; i < 2000; ++i)
    endless.answers.push_back({200, listing(more("t" + std::to_string(i)))});
  CHECK_THAT(endless.error("s3://bucket"), Mentions("1000 pages without an object"));
}

TEST_CASE("what a service says is read from its XML, or is the status alone") {
  const ServiceError error("about",
                           {503, "<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>"});
  CHECK(error.status() == 503);
  CHECK(error.code() == "SlowDown");
  CHECK(std::string(error.what()) == "about: the server says 503, SlowDown");
  CHECK(ServiceError("a", {500, "<errorResponse><Error><Code>500</Code></Error></errorResponse>"})
            .code() == "500");
  CHECK(std::string(ServiceError("a", {500, "<Err"}).what()) == "a: the server says 500");
  CHECK(std::string(ServiceError("a", {500, ""}).what()) == "a: the server says 500");
  const std::string longest(100'000, 'x');
  CHECK(std::string(ServiceError("a", {500, "<Error><Code>" + longest + "</Code></Error>"}).what())
            .size() < 500);
}

TEST_CASE("a list has the classes, labels and order of a folder with the same files") {
  const TemporaryDirectory directory;
  const auto folder = directory / "data";
  // In the order of the whole keys "a-b/..." comes before "a/...", and "a/b-c/..." before
  // "a/b/...".
  const Strings names = {"a-b/1.jpg",      "a/2.PNG",
                         "a/b-c/3.jpeg",   "a/b/4.webp",
                         "a/b/c/5.jpg",    "a/b\t6.jpg",
                         "a/z.jpg",        "#c/7.jpg",
                         "z/a b+%.jpg",    "a/notes.txt",
                         "a/._2.PNG",      "top.jpg",
                         "__MACOSX/8.jpg", "a/.ipynb_checkpoints/9.jpg",
                         "\xC3\xA4/10.jpg"};
  for (const std::string& name : names) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << "x";
  }
  FileFolder(folder).save_list(directory / "expected");

  ObjectList list("train/");
  for (const std::string& name : names) list.add("train/" + name);
  list.add("train/");
  list.add("train/a/");
  CHECK(list.size() == 10);
  list.save(directory / "list");
  CHECK(content(directory / "list") == content(directory / "expected"));

  const FileFolder read = FileFolder::from_list(directory / "list", folder), there(folder);
  REQUIRE(read.size() == there.size());
  CHECK(read.classes() == there.classes());
  for (std::uint64_t i = 0; i < read.size(); ++i) {
    CHECK(read.name(i) == there.name(i));
    CHECK(read.label(i) == there.label(i));
  }
}

TEST_CASE("a list without labels is in the order of the keys") {
  const TemporaryDirectory directory;
  ObjectList list("", ObjectList::Labels::none, {".Tar", ".txt"});
  for (const char* key : {"b/2.tar", "BZh91AY&SY.txt", "#.tar", "a.TAR", "c.jpg", "d.tar/"})
    list.add(key);
  list.save(directory / "list");
  CHECK(content(directory / "list") == "./#.tar\t-1\nBZh91AY&SY.txt\t-1\na.TAR\t-1\nb/2.tar\t-1\n");
  const FileFolder read = FileFolder::from_list(directory / "list", "/r");
  REQUIRE(read.size() == 4);
  CHECK(read.name(0) == "r/#.tar");
  CHECK(read.label(0) == -1);
  ObjectList first("", ObjectList::Labels::none, {".txt"});
  first.add("BZh91AY&SY.txt");  // It begins as what bzip2 has compressed.
  first.save(directory / "first");
  CHECK(FileFolder::from_list(directory / "first", "/r").name(0) == "r/BZh91AY&SY.txt");
}

TEST_CASE("what a list cannot have is an error that names the key") {
  ObjectList list("train/", ObjectList::Labels::none);
  const auto error = [&](const char* key) { return thrown<ListingError>([&] { list.add(key); }); };
  CHECK_THAT(error("train/a\nb.jpg"), Mentions("\"train/a\\x0Ab.jpg\" has a line break"));
  CHECK_THAT(error("train//a.jpg"), Mentions("begins with a slash or a dot"));
  CHECK_THAT(error("train/./a.jpg"), Mentions("begins with a slash or a dot"));
  CHECK_THAT(error("train/../a.jpg"), Mentions("\"train/../a.jpg\" has a directory \"..\""));
  CHECK_THAT(error("train/s3://b/a.jpg"), Mentions("or is a URL"));
  CHECK_THAT(error("test/a.jpg"), Mentions("\"test/a.jpg\" is not below it"));
  CHECK(list.size() == 0);
  CHECK_THAT(thrown<std::invalid_argument>([] { ObjectList("train"); }),
             Mentions("does not end in a slash"));
}

TEST_CASE("a list that cannot be written leaves nothing") {
  const TemporaryDirectory directory;
  ObjectList list("");
  const auto error = [&](const std::filesystem::path& path) {
    return thrown<ListingError>([&] { list.save(path); });
  };
  CHECK_THAT(thrown<NothingListed>([&] { list.save(directory / "list"); }),
             Mentions("there are none"));
  list.add("b/1.jpg");
  CHECK_THAT(error(directory / "none/list"), Mentions("none/list: cannot create a file here"));
  list.add("a/");
  CHECK_THAT(error(directory / "list"), Mentions("\"a\" is a class without objects"));
  list.add("a/1.jpg");
  list.add("c/notes.txt");
  CHECK_THAT(error(directory / "list"), Mentions("\"c\" is a class without objects"));
  CHECK(std::filesystem::is_empty(directory / ""));
}
