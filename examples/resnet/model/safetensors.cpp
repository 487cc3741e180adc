// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <penstock/detail/storage/crc32c.hpp>
#include <set>
#include <utility>

#include "../../common/read_file.hpp"
#include "json_fields.hpp"
#include "programs/output_file.hpp"

namespace resnet::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is, and nothing is swapped");

using Json = nlohmann::json;
constexpr std::uint64_t largest_header = 100'000'000;  // the format's own limit
constexpr const char* metadata_key = "__metadata__";
constexpr const char* checksum_key = "penstock.crc32c";

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

/// A name of the file's, as messages have it: on one line, and not too long.
std::string in_quotes(const std::string& name) {
  constexpr std::size_t longest = 100;
  std::string text = name.substr(0, longest);
  for (char& c : text)
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
  return '"' + text + (name.size() > longest ? "...\"" : "\"");
}

/// Looks at a header while it is parsed. A name that comes twice is an error, which the JSON
/// library would not notice; and no header needs to be deep: what is deep is not worth its memory.
class HeaderRules {
 public:
  explicit HeaderRules(const File& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    constexpr int deepest = 4;
    if (depth > deepest) file_.fail("the header is no safetensors header: it is too deep");
    if (event == Json::parse_event_t::object_start) names_.emplace_back();
    if (event == Json::parse_event_t::object_end) names_.pop_back();
    if (event == Json::parse_event_t::key &&
        !names_.back().insert(parsed.get<std::string>()).second)
      file_.fail("the header has " + in_quotes(parsed.get<std::string>()) + " twice");
    return true;
  }

 private:
  const File& file_;
  std::vector<std::set<std::string>> names_;  // of the objects that are open
};

Json parse_json(const File& file, std::string_view text) {
  if (text.empty() || text.front() != '{') file.fail("the header does not begin with {");
  try {
    return Json::parse(text, [rules = HeaderRules(file)](int depth, Json::parse_event_t event,
                                                         Json& parsed) mutable {
      return rules(depth, event, parsed);
    });
  } catch (const Json::exception& error) {
    file.fail("the header is no JSON: " + reason_of(error));
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
  if (!good) file.fail(in_quotes(name) + " has no good " + key);
  return found->get<std::vector<std::uint64_t>>();
}

Place parse_tensor(const File& file, const Json& entry, Tensor& tensor) {
  const std::string name = in_quotes(tensor.name);
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string())
    file.fail(name + " has no dtype");
  tensor.dtype = entry["dtype"].get<std::string>();
  for (const std::uint64_t extent : numbers(file, tensor.name, entry, "shape"))
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  const std::vector<std::uint64_t> offsets = numbers(file, tensor.name, entry, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) file.fail(name + " has bad data_offsets");
  const auto element = element_bytes(tensor.dtype);
  if (!element) file.fail(name + " is of an unknown type, " + in_quotes(tensor.dtype));
  if (bytes_of(tensor.shape, *element) != offsets[1] - offsets[0])
    file.fail(name + " has " + std::to_string(offsets[1] - offsets[0]) +
              " bytes, which is not what its shape needs");
  return {offsets[0], offsets[1]};
}

Metadata parse_metadata(const File& file, const Json& entry) {
  Metadata metadata;
  if (!entry.is_object()) file.fail("__metadata__ is no object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) file.fail("__metadata__ has " + in_quotes(key) + ", which is no text");
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
      file.fail(in_quotes(name) + " begins at byte " + std::to_string(place.begin) +
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
  if (found == tensors.end()) fail("has no " + in_quotes(name));
  return found->second;
}

namespace {

std::vector<float> converted(const File& file, const Tensor& tensor) {
  if (tensor.dtype == "F32") return convert<float>(tensor.bytes, [](float value) { return value; });
  if (tensor.dtype == "F64")
    return convert<double>(tensor.bytes, [](double value) {
      // A conversion of what no float can hold would be undefined.
      constexpr double largest = std::numeric_limits<float>::max();
      return std::abs(value) <= largest ? static_cast<float>(value)
                                        : std::numeric_limits<float>::infinity();
    });
  if (tensor.dtype == "F16") return convert<std::uint16_t>(tensor.bytes, from_half);
  if (tensor.dtype == "BF16") return convert<std::uint16_t>(tensor.bytes, from_bfloat);
  file.fail(in_quotes(tensor.name) + " is of type " + tensor.dtype +
            ", and floating point is wanted");
}

}  // namespace

std::vector<float> File::floats(const Tensor& tensor) const {
  std::vector<float> values = converted(*this, tensor);
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  if (bad != values.end())
    fail(in_quotes(tensor.name) + " has a value that is not finite, its element " +
         std::to_string(bad - values.begin()));
  return values;
}

// ---- The checksum -------------------------------------------------------------------------------

namespace {

/// Of texts, numbers and bytes, one behind the other, with their lengths.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    const std::uint64_t size = bytes.size();
    sum_ = penstock::detail::crc32c(std::as_bytes(std::span(&size, 1)), sum_);
    sum_ = penstock::detail::crc32c(bytes, sum_);
  }
  void add(const std::string& text) { add(std::as_bytes(std::span(text))); }
  void add(const Tensor& tensor) {
    add(tensor.name);
    add(tensor.dtype);
    add(std::as_bytes(std::span(tensor.shape)));
    add(tensor.bytes);
  }
  std::string text() const {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", static_cast<unsigned>(sum_));
    return digits.data();
  }

 private:
  std::uint32_t sum_ = 0;
};

/// `tensors` are in the order of their names.
template <class Tensors>
std::string checksum_of(const Metadata& metadata, const Tensors& tensors) {
  Checksum sum;
  for (const auto& [key, value] : metadata) {
    sum.add(key);
    sum.add(value);
  }
  for (const auto& [name, tensor] : tensors) sum.add(tensor);
  return sum.text();
}

void check_checksum(File& file) {
  const auto entry = file.metadata.extract(checksum_key);
  file.has_checksum = !entry.empty();
  if (!file.has_checksum || entry.mapped() == checksum_of(file.metadata, file.tensors)) return;
  file.fail(std::string("is damaged: it has another checksum than when it was written. (If another "
                        "program has changed it on purpose: remove \"") +
            checksum_key + "\" from its metadata)");
}

}  // namespace

// ---- Reading ------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t length_bytes = sizeof(std::uint64_t);

/// Bytes of the header, by a file's first bytes.
std::uint64_t header_bytes(const File& file, std::uint64_t file_bytes) {
  std::uint64_t size = 0;
  if (file.data.size() < length_bytes) file.fail("is too short to be a safetensors file");
  std::memcpy(&size, file.data.data(), length_bytes);
  if (size > largest_header) file.fail("is no safetensors file: its header is too long");
  if (size > file_bytes - length_bytes) file.fail("is cut short: within its header");
  return size;
}

using Places = std::vector<std::pair<Place, std::string>>;

/// All that the header says. `file.data` has it, and `data_bytes` are behind it in the file.
Places parse_header(File& file, std::uint64_t header_size, std::uint64_t data_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(file.data.data()) + length_bytes,
                              header_size);
  const Json header = parse_json(file, text);
  Places places;
  for (const auto& [name, entry] : header.items()) {
    if (name == metadata_key) {
      file.metadata = parse_metadata(file, entry);
      continue;
    }
    Tensor& tensor = file.tensors[name];
    tensor.name = name;
    places.emplace_back(parse_tensor(file, entry, tensor), name);
  }
  check_places(file, places, data_bytes);
  return places;
}

void take_data(File& file, const Places& places, std::uint64_t header_size) {
  const auto data = std::span<const std::byte>(file.data).subspan(length_bytes + header_size);
  for (const auto& [place, name] : places)
    file.tensors[name].bytes = data.subspan(place.begin, place.end - place.begin);
  check_checksum(file);
}

}  // namespace

File parse(std::vector<std::byte> bytes, const std::filesystem::path& name) {
  File file;
  file.path = name;
  file.data = std::move(bytes);
  const std::uint64_t header_size = header_bytes(file, file.data.size());
  const Places places =
      parse_header(file, header_size, file.data.size() - length_bytes - header_size);
  take_data(file, places, header_size);
  return file;
}

File read(const std::filesystem::path& path) {
  File file;
  file.path = path;
  try {
    examples::RegularFile bytes(path);
    // The header first: memory is taken only for what it describes.
    bytes.append(file.data, length_bytes);
    const std::uint64_t header_size = header_bytes(file, bytes.size());
    bytes.append(file.data, header_size);
    if (file.data.size() < length_bytes + header_size) file.fail("is cut short: within its header");
    const std::uint64_t data_bytes = bytes.size() - length_bytes - header_size;
    const Places places = parse_header(file, header_size, data_bytes);
    bytes.append(file.data, data_bytes);
    if (file.data.size() != bytes.size()) file.fail("became shorter while it was read");
    take_data(file, places, header_size);
  } catch (const examples::ReadError& error) {
    file.fail(std::string("cannot be read: ") + error.what());
  }
  return file;
}

// ---- Writing ------------------------------------------------------------------------------------

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

}  // namespace

void write(const std::filesystem::path& path, const std::vector<Tensor>& tensors,
           const Metadata& metadata) {
  std::map<std::string, Tensor> by_name;
  for (const Tensor& tensor : tensors) by_name.emplace(tensor.name, tensor);
  Metadata with_checksum = metadata;
  with_checksum[checksum_key] = checksum_of(metadata, by_name);
  const std::string header = make_header(tensors, with_checksum);
  penstock::programs::OutputFile file(path);
  file.write(header);
  for (const Tensor& tensor : tensors) file.write(tensor.bytes.data(), tensor.bytes.size());
  file.commit();
}

}  // namespace resnet::safetensors
