// SPDX-License-Identifier: Apache-2.0

#include "listing.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <penstock/detail/escaped.hpp>
#include <penstock/detail/storage/file_list.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/whole_file.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/remote.hpp>
#include <system_error>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "service_error.hpp"
#include "url.hpp"
#include "xml.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

namespace {

constexpr std::string_view kRoot = "ListBucketResult";
constexpr int kMostEmptyPages = 1000;

class PageReader {
 public:
  void take(std::string_view path, std::string_view text) {
    if (!detail::take(path, kRoot)) {
      const std::string_view root = path.substr(0, path.find('/'));
      throw std::runtime_error("it is no listing but <" + detail::escaped(root.substr(0, 100)) +
                               ">");
    }
    if (path.empty()) {
      is_listing_ = true;
    } else if (path == "/Contents/Key") {
      set(key_, text, "Key");
    } else if (path == "/Contents/Size") {
      set(size_, text, "Size");
    } else if (path == "/Contents/ETag") {
      set(etag_, text, "ETag");
    } else if (path == "/Contents") {
      end_object();
    } else if (path == "/CommonPrefixes/Prefix") {
      page_.prefixes.emplace_back(text);
    } else if (path == "/EncodingType") {
      if (text != "url" && !text.empty())
        throw std::runtime_error("an encoding that is not \"url\": \"" +
                                 detail::escaped(text.substr(0, 100)) + "\"");
      is_encoded_ = !text.empty();
    } else if (path == "/IsTruncated") {
      if (text != "true" && text != "false")
        throw std::runtime_error("IsTruncated is neither true nor false");
      is_truncated_ = text == "true";
    } else if (path == "/NextContinuationToken") {
      page_.next = text;
    }
  }

  /// The elements may come in any order, so it is known at the end alone how keys are encoded.
  ListingPage page() {
    if (!is_listing_) throw XmlError("it is no listing");
    if (!is_truncated_) page_.next.clear();
    if (is_truncated_ && page_.next.empty())
      throw XmlError(
          "it is not the last page, and has no NextContinuationToken: the server may know the "
          "first "
          "version of ListObjects alone");
    if (is_encoded_) {
      for (ListedObject& object : page_.objects) decode(object.key);
      for (std::string& prefix : page_.prefixes) decode(prefix);
    }
    return std::move(page_);
  }

 private:
  static void set(std::optional<std::string>& field, std::string_view text, const char* name) {
    if (field) throw std::runtime_error(std::string("an object with two elements ") + name);
    field = text;
  }

  void end_object() {
    if (!key_ || key_->empty()) throw std::runtime_error("an object without a Key");
    const auto bytes = size_ ? detail::read_number<std::uint64_t>(*size_) : std::nullopt;
    if (!bytes) throw std::runtime_error("an object whose Size is no number of bytes");
    std::string_view etag = etag_ ? std::string_view(*etag_) : std::string_view();
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
      etag = etag.substr(1, etag.size() - 2);
    page_.objects.push_back({std::move(*key_), *bytes, std::string(etag)});
    key_.reset();
    size_.reset();
    etag_.reset();
  }

  static void decode(std::string& key) {
    std::optional<std::string> plain = percent_decoded(key, true);
    if (!plain)
      throw XmlError("a key with a \"%\" before what are no two digits: \"" +
                     detail::escaped(key.substr(0, 200)) + "\"");
    key = std::move(*plain);
  }

  ListingPage page_;
  std::optional<std::string> key_, size_, etag_;
  bool is_listing_ = false, is_encoded_ = false, is_truncated_ = false;
};

std::string_view directory_of(std::string_view key) {
  const std::size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : key.substr(0, slash);
}

}  // namespace

ListingPage read_listing_page(std::string_view xml) {
  PageReader reader;
  read_xml(xml, [&](std::string_view path, std::string_view text) { reader.take(path, text); });
  return reader.page();
}

void list_objects(const Location& prefix, const std::function<HttpAnswer(HttpCall&)>& get,
                  const std::function<void(const ListingPage&)>& take,
                  const ListingLimits& limits) {
  std::unordered_set<std::string> tokens;
  std::string token;
  std::uint64_t objects = 0;
  int empty_pages = 0;
  for (std::uint64_t number = 1;; ++number) {
    const auto fail = [&](const std::string& why) {
      throw ListingError("the listing of " + prefix.printable() + ", page " +
                         std::to_string(number) + ": " + why);
    };
    HttpCall call;
    call.url = prefix.listing_url({.token = token, .delimiter = {}});
    call.timeout = std::chrono::minutes(1);
    const HttpAnswer answer = get(call);
    if (answer.status != 200) throw ServiceError("the listing of " + prefix.printable(), answer);
    if (answer.body.size() > limits.page_bytes)
      fail("it has " + std::to_string(answer.body.size()) + " bytes, and may have " +
           std::to_string(limits.page_bytes));
    ListingPage page;
    try {
      page = read_listing_page(answer.body);
    } catch (const XmlError& error) {
      fail(error.what());
    }
    for (const ListedObject& object : page.objects)
      if (!object.key.starts_with(prefix.key()))
        fail("the key \"" + detail::escaped(object.key.substr(0, 200)) +
             "\" is not below the prefix");
    objects += page.objects.size();
    if (objects > limits.objects)
      fail("there are more than " + std::to_string(limits.objects) + " objects");
    empty_pages = page.objects.empty() ? empty_pages + 1 : 0;
    take(page);
    if (page.next.empty()) return;
    if (empty_pages == kMostEmptyPages) fail("it is one of 1000 pages without an object");
    if (!tokens.insert(page.next).second)
      fail("its NextContinuationToken is one of an earlier page, so that the listing has no end");
    token = std::move(page.next);
  }
}

ObjectList::ObjectList(std::string prefix, Labels labels,
                       const std::vector<std::string>& extensions)
    : prefix_(std::move(prefix)), labels_(labels) {
  if (!prefix_.empty() && !prefix_.ends_with('/'))
    throw std::invalid_argument("ObjectList: the prefix \"" + detail::escaped(prefix_) +
                                "\" does not end in a slash");
  for (const std::string& extension : extensions)
    extensions_.push_back(detail::lower_case(extension));
  if (extensions.empty())
    extensions_.assign(detail::kImageExtensions.begin(), detail::kImageExtensions.end());
}

void ObjectList::fail(const std::string& why) const {
  throw ListingError("a list of the objects below \"" + detail::escaped(prefix_) + "\": " + why);
}

void ObjectList::add(std::string_view whole) {
  std::string_view key = whole;
  if (!detail::take(key, prefix_))
    fail("the key \"" + detail::escaped(whole) + "\" is not below it");
  if (detail::is_left_by_tools(key)) return;
  const std::size_t slash = key.find('/');
  if (labels_ == Labels::by_directory) {
    if (slash == std::string_view::npos) return;
    const std::string_view directory = key.substr(0, slash);
    if (seen_.empty() || seen_.back() != directory) seen_.emplace_back(directory);
  }
  if (key.ends_with('/') || !detail::has_extension(key, extensions_)) return;
  if (key.find_first_of("\r\n") != std::string_view::npos ||
      key.find('\0') != std::string_view::npos)
    fail("the key \"" + detail::escaped(whole) + "\" has a line break, which a list cannot have");
  if (key.starts_with('/') || key.starts_with("./"))
    fail("the key \"" + detail::escaped(whole) +
         "\" begins with a slash or a dot behind it, which a "
         "list cannot have");
  if (detail::leaves_folder(key))
    fail("the key \"" + detail::escaped(whole) +
         "\" has a directory \"..\", or is a URL, which a list cannot have");
  keys_.add(key);
}

void ObjectList::save(const std::filesystem::path& list) const try {
  if (keys_.size() == 0)
    throw NothingListed("a list of the objects below \"" + detail::escaped(prefix_) +
                        "\": there are none with the extensions that are asked for");
  std::vector<std::uint64_t> order(keys_.size());
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  const bool labelled = labels_ == Labels::by_directory;
  const auto parts = [&](std::uint64_t i) {
    const std::string_view key = keys_[i], directory = labelled ? directory_of(key) : "";
    return std::tuple(key.substr(0, labelled ? key.find('/') : 0), directory, key);
  };
  std::sort(order.begin(), order.end(),
            [&](std::uint64_t a, std::uint64_t b) { return parts(a) < parts(b); });

  std::vector<std::string> classes = seen_;
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());

  detail::WholeFile out(list);
  for (const std::string& name : classes) {
    if (name.find_first_of("\r\n") != std::string::npos)
      fail("the directory \"" + detail::escaped(name) +
           "\" has a line break, which a list cannot have");
    out.write("#class\t");
    out.write(name);
    out.write("\n");
  }
  std::size_t label = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::string_view key = keys_[order[i]];
    if (labelled) {
      const std::string_view of_key = key.substr(0, key.find('/'));
      if (i > 0 && of_key != keys_[order[i - 1]].substr(0, keys_[order[i - 1]].find('/'))) ++label;
      if (classes[label] != of_key)
        fail("the directory \"" + detail::escaped(classes[label]) +
             "\" is a class without objects: none in it has an extension that is asked for");
    }
    // Without it this line would be a comment, or could be taken for the start of another file.
    if (key.starts_with('#') || key.starts_with("\xEF\xBB\xBF") || (i == 0 && !labelled))
      out.write("./");
    out.write(key);
    out.write(labelled ? "\t" + std::to_string(label) + "\n" : "\t-1\n");
  }
  if (labelled && label + 1 != classes.size())
    fail("the directory \"" + detail::escaped(classes[label + 1]) +
         "\" is a class without objects: none in it has an extension that is asked for");
  out.commit();
} catch (const std::system_error& error) {
  throw ListingError(list.string() + ": " + error.what());
}

}  // namespace penstock::remote
