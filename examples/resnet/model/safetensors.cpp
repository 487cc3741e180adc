// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace resnet::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is, and nothing is swapped");

using Json = nlohmann::json;
constexpr std::uint64_t largest_header = 100'000'000;  // the format's own limit
constexpr const char* metadata_key = "__metadata__";

/// Bytes of an element; nothing for a type that the format does not have.
std::optional<std::uint64_t> element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

/// Nothing when the product does not fit.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape,
                                      std::uint64_t element) {
  std::uint64_t bytes = element;
  for (const std::int64_t extent : shape) {
    const auto factor = static_cast<std::uint64_t>(extent);
    if (factor != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor)
      return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

std::vector<std::byte> read_bytes(const File& file) {
  std::ifstream in(file.path, std::ios::binary | std::ios::ate);
  if (!in) file.fail("cannot be read: " + std::generic_category().message(errno));
  std::vector<std::byte> bytes(static_cast<std::size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!in) file.fail("cannot be read to its end");
  return bytes;
}

/// A name that comes twice is an error, which the JSON library would not notice.
Json parse_header(const File& file, std::string_view text) {
  if (text.empty() || text.front() != '{') file.fail("the header does not begin with {");
  std::set<std::string> names;
  std::string twice;
  const auto note = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key &&
        !names.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  try {
    Json header = Json::parse(text, note);
    if (!twice.empty()) file.fail("the header has \"" + twice + "\" twice");
    return header;
  } catch (const Json::exception& error) {
    file.fail(std::string("the header is no JSON: ") + error.what());
  }
}

/// Where a tensor lies in the data.
struct Place {
  std::uint64_t begin, end;
};

std::vector<std::uint64_t> numbers(const File& file, const std::string& name, const Json& entry,
                                   const char* key) {
  const auto found = entry.find(key);
  const bool good = found != entry.end() && found->is_array() &&
                    std::all_of(found->begin(), found->end(), [](const Json& number) {
                      return number.is_number_unsigned() &&
                             number.get<std::uint64_t>() <=
                                 std::uint64_t{std::numeric_limits<std::int64_t>::max()};
                    });
  if (!good) file.fail("\"" + name + "\" has no good " + key);
  return found->get<std::vector<std::uint64_t>>();
}

Place parse_tensor(const File& file, const Json& entry, Tensor& tensor) {
  const std::string quoted = "\"" + tensor.name + "\"";
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string())
    file.fail(quoted + " has no dtype");
  tensor.dtype = entry["dtype"].get<std::string>();
  for (const std::uint64_t extent : numbers(file, tensor.name, entry, "shape"))
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  const std::vector<std::uint64_t> offsets = numbers(file, tensor.name, entry, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) file.fail(quoted + " has bad data_offsets");
  const auto element = element_bytes(tensor.dtype);
  if (!element) file.fail(quoted + " is of an unknown type, " + tensor.dtype);
  if (bytes_of(tensor.shape, *element) != offsets[1] - offsets[0])
    file.fail(quoted + " has " + std::to_string(offsets[1] - offsets[0]) +
              " bytes, which is not what its shape needs");
  return {offsets[0], offsets[1]};
}

Metadata parse_metadata(const File& file, const Json& entry) {
  Metadata metadata;
  if (!entry.is_object()) file.fail("__metadata__ is no object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) file.fail("__metadata__ has \"" + key + "\", which is no text");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

/// The tensors fill the data, without gaps and without meeting.
void check_places(const File& file, std::vector<std::pair<Place, std::string>> places,
                  std::uint64_t size) {
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  std::uint64_t end = 0;
  for (const auto& [place, name] : places) {
    if (place.begin != end)
      file.fail("\"" + name + "\" begins at byte " + std::to_string(place.begin) +
                " of the data, and what is before it ends at " + std::to_string(end));
    end = place.end;
  }
  if (end > size)
    file.fail("is cut short: " + std::to_string(size) + " bytes of data, of " +
              std::to_string(end));
  if (end < size) file.fail("has " + std::to_string(size - end) + " bytes behind its last tensor");
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

float from_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Reads elements of `Stored`, which may lie at any address.
template <class Stored, class Convert>
std::vector<float> convert(std::span<const std::byte> bytes, const Convert& to_float) {
  std::vector<float> values(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = to_float(stored);
  }
  return values;
}

}  // namespace

void File::fail(const std::string& why) const {
  throw FormatError(path.string() + ": " + why);
}

const Tensor& File::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) fail("has no \"" + name + "\"");
  return found->second;
}

std::vector<float> File::floats(const Tensor& tensor) const {
  if (tensor.dtype == "F32") return convert<float>(tensor.bytes, [](float value) { return value; });
  if (tensor.dtype == "F64")
    return convert<double>(tensor.bytes, [](double value) { return static_cast<float>(value); });
  if (tensor.dtype == "F16") return convert<std::uint16_t>(tensor.bytes, from_half);
  if (tensor.dtype == "BF16") return convert<std::uint16_t>(tensor.bytes, from_bfloat);
  fail("\"" + tensor.name + "\" is of type " + tensor.dtype + ", and floating point is wanted");
}

File read(const std::filesystem::path& path) {
  File file;
  file.path = path;
  file.data = read_bytes(file);
  std::uint64_t header_size = 0;
  if (file.data.size() < sizeof(header_size)) file.fail("is too short to be a safetensors file");
  std::memcpy(&header_size, file.data.data(), sizeof(header_size));
  if (header_size > largest_header) file.fail("is no safetensors file: its header is too long");
  if (header_size > file.data.size() - sizeof(header_size))
    file.fail("is cut short: within its header");
  const std::string_view text(reinterpret_cast<const char*>(file.data.data()) + sizeof(header_size),
                              header_size);
  const auto data =
      std::span<const std::byte>(file.data).subspan(sizeof(header_size) + header_size);
  const Json header = parse_header(file, text);
  std::vector<std::pair<Place, std::string>> places;
  for (const auto& [name, entry] : header.items()) {
    if (name == metadata_key) {
      file.metadata = parse_metadata(file, entry);
      continue;
    }
    Tensor& tensor = file.tensors[name];
    tensor.name = name;
    places.emplace_back(parse_tensor(file, entry, tensor), name);
  }
  check_places(file, places, data.size());
  for (const auto& [place, name] : places)
    file.tensors[name].bytes = data.subspan(place.begin, place.end - place.begin);
  return file;
}

namespace {

/// The length and the header, padded with spaces so that the data is aligned.
std::string make_header(const std::vector<Tensor>& tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[metadata_key] = metadata;
  std::uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t begin = std::exchange(end, end + tensor.bytes.size());
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = text.size();
  std::string length(sizeof(size), '\0');
  std::memcpy(length.data(), &size, sizeof(size));
  return length + text;
}

class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path)
      : path_(path),
        descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail();
  }
  ~NewFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* bytes, std::size_t size) {
    const char* next = static_cast<const char*>(bytes);
    while (size > 0) {
      const ::ssize_t written = ::write(descriptor_, next, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      next += written;
      size -= static_cast<std::size_t>(written);
    }
  }
  /// On the disk: a rename must not come to it before the bytes do.
  void finish() {
    if (::fsync(descriptor_) != 0 || ::close(std::exchange(descriptor_, -1)) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw std::system_error(errno, std::generic_category(), "writing " + path_.string());
  }

  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace

void write(const std::filesystem::path& path, const std::vector<Tensor>& tensors,
           const Metadata& metadata) {
  const std::string header = make_header(tensors, metadata);
  std::filesystem::path partial = path;
  partial += ".partial";
  NewFile file(partial);
  try {
    file.write(header.data(), header.size());
    for (const Tensor& tensor : tensors) file.write(tensor.bytes.data(), tensor.bytes.size());
    file.finish();
    std::filesystem::rename(partial, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

}  // namespace resnet::safetensors
