// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/hardware_decoder.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "decode_lane.hpp"
#include "decode_team.hpp"
#include "jpeg_header.hpp"
#include "needed.hpp"
#include "share_finder.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

constexpr std::size_t kAlignment = 256;

struct MakeLane {
  static constexpr const char* message = "make lane";
};
struct ReadHeaders {
  static constexpr const char* message = "read headers";
  static constexpr MarkerCategory category = markers::category::fill;
};
struct WaitForLane {
  static constexpr const char* message = "wait for lane";
  static constexpr MarkerCategory category = markers::category::wait;
};
struct StageFiles {
  static constexpr const char* message = "stage files";
  static constexpr MarkerCategory category = markers::category::copy;
};
struct DecodeByEngine {
  static constexpr const char* message = "decode by engine";
  static constexpr MarkerCategory category = markers::category::fill;
};

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t pixel_bytes(ImageSize size) {
  return static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width) * 3;
}

bool is_within(const Region& region, ImageSize size) {
  return region.top >= 0 && region.left >= 0 && region.height > 0 && region.width > 0 &&
         region.height <= size.height - region.top && region.width <= size.width - region.left;
}

/// An image of the batch.
struct Row {
  std::span<const std::byte> file;
  ImageSize size;  ///< empty: no decoder can decode it
  View view;
  Region part;  ///< the part that an engine decodes
  DecodedBy plan = DecodedBy::nobody;
};

/// The share that the decoders of a device determine together, because they use the same engines
/// and cores.
class FoundShare {
 public:
  double value() {
    const std::lock_guard lock(mutex_);
    return finder_.share();
  }
  void add(std::size_t images) {
    const std::lock_guard lock(mutex_);
    finder_.add(images, std::chrono::steady_clock::now().time_since_epoch());
  }

  /// Returns the object of the current device. It exists as long as a decoder uses it.
  static std::shared_ptr<FoundShare> shared() {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<FoundShare>> shares;
    const std::lock_guard lock(mutex);
    std::weak_ptr<FoundShare>& known = shares[current_device()];
    std::shared_ptr<FoundShare> share = known.lock();
    if (share == nullptr) known = share = std::make_shared<FoundShare>();
    return share;
  }

 private:
  std::mutex mutex_;
  ShareFinder finder_;
};

ImageSize size_of_part(const Row& row) {
  return {row.part.height, row.part.width};
}

void check_options(const HardwareOptions& options) {
  const auto reject = [](const std::string& why) {
    throw std::invalid_argument("HardwareOptions: " + why);
  };
  if (options.lanes < 2)
    reject("lanes is " + std::to_string(options.lanes) +
           ", must be at least 2: one is decoded while the kernel reads the other");
  if (options.cpu_threads < 0)
    reject("cpu_threads is " + std::to_string(options.cpu_threads) + ", must be at least 0");
  if (options.cpu_share && !(*options.cpu_share >= 0 && *options.cpu_share <= 1))
    reject("cpu_share is " + std::to_string(*options.cpu_share) + ", must be between 0 and 1");
  if (options.engine.batch < 1 || options.engine.image.height < 1 || options.engine.image.width < 1)
    reject("engine.batch and engine.image must be at least 1");
  if (options.engine.decoders < 1)
    reject("engine.decoders is " + std::to_string(options.engine.decoders) +
           ", must be at least 1");
}

}  // namespace

// ---- Core ---------------------------------------------------------------------------------------

class HardwareDecoder::Core {
 public:
  Core(const HardwareOptions& options, const MakeEngine& make)
      : options_((check_options(options), options)),
        share_(options.cpu_share.value_or(0)),
        team_(options.cpu_threads, options.cpu) {
    const CaptureModeGuard guard;
    for (int i = 0; i < options.lanes; ++i) lanes_.push_back(make_lane(make));
    if (options.require_engine && !has_engine())
      throw std::runtime_error("HardwareDecoder: an engine is required, and there is none: " +
                               why_not_);
    if (has_engine() && !options.cpu_share) found_ = FoundShare::shared();
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core() {
    const CaptureModeGuard guard;
    for (const Lane& lane : lanes_) {
      cudaEventSynchronize(lane.free.get());
      cudaStreamSynchronize(lane.stream.get());
    }
  }

  void begin(std::span<const JpegItem> items, ImageSize output);
  void set_view(std::size_t row, const View& view);
  bool next(Chunk& chunk, cudaStream_t stream, const std::stop_token& stop);
  void end(cudaStream_t stream) { lane_->free.record(stream); }

  ImageSize size_of(std::size_t row) const { return rows_[row].size; }
  std::span<const ImageResult> results() const { return std::span(results_).first(rows_.size()); }
  const HardwareStats& stats() const { return stats_; }
  double share() const { return share_; }
  bool has_engine() const { return lanes_[0].engine != nullptr; }
  std::string backend() const { return has_engine() ? lanes_[0].engine->name() : "cpu"; }
  const std::string& why_not() const { return why_not_; }

 private:
  struct Range {
    std::size_t first, last;  ///< rows; `last` is one past the end
  };

  Lane make_lane(const MakeEngine& make);
  std::size_t geometry_bytes() const {
    return aligned(static_cast<std::size_t>(options_.engine.batch) * sizeof(ImageGeometry));
  }
  void inspect(std::size_t row, std::uint64_t seed);
  bool engine_takes(const JpegHeader& header, std::span<const std::byte> file);
  void open_by_cpu(std::size_t row);
  void fail(std::size_t row, const char* why);
  void count(DecodedBy by);

  Range next_range();
  Range next_fitting() const;
  void lay_out(const Range& range);
  void decode(const std::stop_token& stop);
  void hand_over(std::size_t rows, cudaStream_t stream);
  void decode_by_engine(std::size_t first, std::size_t number);
  void give_back(std::size_t image);
  void decode_by_cpu(std::int64_t task, RowDecoder& decoder);

  const HardwareOptions options_;
  double share_;                       ///< of the batch
  std::shared_ptr<FoundShare> found_;  ///< the source of share_; nullptr: the options
  std::string why_not_;
  std::vector<Lane> lanes_;
  Lane* lane_ = nullptr;  ///< the lane of the current chunk
  std::size_t turn_ = 0;

  // The batch.
  ImageSize output_;
  std::size_t room_ = 0;  ///< space for an image that the CPU decodes, in bytes
  std::vector<Row> rows_;
  std::vector<ImageResult> results_;
  std::size_t next_row_ = 0;
  std::vector<std::size_t> returned_;  ///< rows that an engine accepted and could not decode
  std::size_t next_returned_ = 0;

  // The chunk.
  std::size_t first_ = 0;
  ImageGeometry* geometry_ = nullptr;
  std::vector<JpegEngine::Image> images_;  ///< the images of the engine
  std::vector<std::size_t> image_rows_;    ///< the rows of these images
  std::vector<std::size_t> cpu_rows_;
  const std::stop_token* stop_ = nullptr;

  HardwareStats stats_;
  DecodeTeam team_;  // It is the last member, because its threads use the others.
};

Lane HardwareDecoder::Core::make_lane(const MakeEngine& make) {
  const ScopedRange range(MakeLane{}, lanes_.size());
  Lane lane(geometry_bytes() + options_.device_bytes, geometry_bytes() + options_.staging_bytes);
  if (why_not_.empty() && make) lane.engine = make(options_.engine, why_not_);
  if (lane.engine == nullptr && why_not_.empty()) why_not_ = "no engine is asked for";
  return lane;
}

void HardwareDecoder::Core::fail(std::size_t row, const char* why) {
  results_[row] = {DecodedBy::nobody, why};
  rows_[row].plan = DecodedBy::nobody;
  rows_[row].size = {};
}

void HardwareDecoder::Core::count(DecodedBy by) {
  const auto add = [&](std::uint64_t HardwareStats::*own,
                       std::atomic<std::uint64_t> HardwareTotals::*total) {
    ++(stats_.*own);
    if (options_.totals != nullptr)
      (options_.totals->*total).fetch_add(1, std::memory_order_relaxed);
  };
  switch (by) {
    case DecodedBy::hardware:
      return add(&HardwareStats::hardware, &HardwareTotals::hardware);
    case DecodedBy::cpu:
      return add(&HardwareStats::cpu, &HardwareTotals::cpu);
    case DecodedBy::nobody:
      return add(&HardwareStats::failed, &HardwareTotals::failed);
  }
}

// ---- Which decoder decodes what -----------------------------------------------------------------

void HardwareDecoder::Core::begin(std::span<const JpegItem> items, ImageSize output) {
  output_ = output;
  room_ = aligned(2 * pixel_bytes(output));
  if (room_ > options_.device_bytes || room_ > options_.staging_bytes)
    throw std::invalid_argument("HardwareDecoder: an output of " + std::to_string(output.height) +
                                " x " + std::to_string(output.width) + " pixels needs " +
                                std::to_string(room_) +
                                " bytes: raise device_bytes and staging_bytes");
  const ScopedRange range(ReadHeaders{}, items.size());
  if (found_ != nullptr) share_ = found_->value();
  rows_.resize(items.size());
  if (results_.size() < items.size()) results_.resize(items.size());
  next_row_ = next_returned_ = 0;
  returned_.clear();
  for (std::size_t row = 0; row < items.size(); ++row) {
    rows_[row] = {items[row].file, {}, {}, {}, DecodedBy::nobody};
    results_[row].by = DecodedBy::nobody;
    results_[row].error.clear();
    inspect(row, items[row].seed);
  }
}

/// Chooses the decoder of a row, and finds the size of its image.
void HardwareDecoder::Core::inspect(std::size_t row, std::uint64_t seed) {
  Row& image = rows_[row];
  if (has_engine() && !is_drawn_for_cpu(seed, share_)) {
    const auto header = read_jpeg_header(image.file);
    if (header && engine_takes(*header, image.file)) {
      image.size = header->size;
      image.plan = DecodedBy::hardware;
      return;
    }
    ++stats_.refused;
    if (options_.totals != nullptr)
      options_.totals->refused.fetch_add(1, std::memory_order_relaxed);
  }
  open_by_cpu(row);
}

bool HardwareDecoder::Core::engine_takes(const JpegHeader& header,
                                         std::span<const std::byte> file) {
  const bool is_turned = options_.cpu.apply_orientation && header.orientation != Orientation{};
  const std::int64_t pixels = std::int64_t{header.size.height} * header.size.width;
  return header.plain && !is_turned && pixels <= options_.cpu.max_pixels &&
         aligned(pixel_bytes(header.size)) <= options_.device_bytes &&
         aligned(file.size()) <= options_.staging_bytes && lanes_[0].engine->takes(file);
}

void HardwareDecoder::Core::open_by_cpu(std::size_t row) {
  try {
    rows_[row].size = team_.own().open(rows_[row].file);
    rows_[row].plan = DecodedBy::cpu;
  } catch (const ImageError& error) {
    fail(row, error.what());
    count(DecodedBy::nobody);
  }
}

void HardwareDecoder::Core::set_view(std::size_t row, const View& view) {
  if (view.output != output_)
    throw std::invalid_argument(
        "HardwareDecoder: a view has an output of " + std::to_string(view.output.height) + " x " +
        std::to_string(view.output.width) + " pixels, the format one of " +
        std::to_string(output_.height) + " x " + std::to_string(output_.width));
  if (!is_within(view.region, rows_[row].size))
    throw std::invalid_argument(
        "HardwareDecoder: the region of a view is empty, or not within an "
        "image of " +
        std::to_string(rows_[row].size.height) + " x " + std::to_string(rows_[row].size.width) +
        " pixels");
  require_within(view, rows_[row].size);  // The output must not extend beyond the region either.
  rows_[row].view = view;
  rows_[row].part = needed_region(view);
}

// ---- Chunks -------------------------------------------------------------------------------------

/// Returns the next rows that fit a lane, and at the end each row that an engine could not decode,
/// by itself.
HardwareDecoder::Core::Range HardwareDecoder::Core::next_range() {
  if (next_row_ < rows_.size()) {
    const Range range = next_fitting();
    next_row_ = range.last;
    return range;
  }
  while (next_returned_ < returned_.size()) {
    const std::size_t row = returned_[next_returned_++];
    const ImageSize size = rows_[row].size;
    open_by_cpu(row);
    if (rows_[row].plan != DecodedBy::cpu) continue;
    if (rows_[row].size == size) return {row, row + 1};
    fail(row, "two decoders see different sizes");
    count(DecodedBy::nobody);
  }
  return {0, 0};
}

HardwareDecoder::Core::Range HardwareDecoder::Core::next_fitting() const {
  Range range{next_row_, next_row_};
  std::size_t device = 0, staging = 0;
  for (; range.last < rows_.size(); ++range.last) {
    if (range.last - range.first == static_cast<std::size_t>(options_.engine.batch)) break;
    const Row& row = rows_[range.last];
    if (row.plan == DecodedBy::nobody) continue;
    const bool by_cpu = row.plan == DecodedBy::cpu;
    device += by_cpu ? room_ : aligned(pixel_bytes(size_of_part(row)));
    staging += by_cpu ? room_ : aligned(row.file.size());
    if (device > options_.device_bytes || staging > options_.staging_bytes) break;
  }
  return range;
}

/// Assigns memory to each image of the chunk, and copies the engine's files to staging memory.
void HardwareDecoder::Core::lay_out(const Range& range) {
  const ScopedRange staging(StageFiles{}, range.last - range.first);
  first_ = range.first;
  geometry_ = reinterpret_cast<ImageGeometry*>(lane_->staging.get());
  images_.clear();
  image_rows_.clear();
  cpu_rows_.clear();
  for (std::size_t row = range.first; row < range.last; ++row) {
    geometry_[row - first_] = {};
    if (rows_[row].plan == DecodedBy::cpu) cpu_rows_.push_back(row);
  }
  const std::size_t rooms_end = geometry_bytes() + cpu_rows_.size() * room_;
  std::size_t pixels = rooms_end, files = rooms_end;
  for (std::size_t row = range.first; row < range.last; ++row) {
    const Row& image = rows_[row];
    if (image.plan != DecodedBy::hardware) continue;
    const std::int64_t stride = std::int64_t{3} * image.part.width;
    std::byte* const file = lane_->staging.get() + files;
    std::memcpy(file, image.file.data(), image.file.size());
    geometry_[row - first_] = {static_cast<std::int64_t>(pixels), stride,
                               within(image.view, image.part)};
    images_.push_back({{file, image.file.size()},
                       image.size,
                       image.part,
                       reinterpret_cast<std::uint8_t*>(lane_->device.get() + pixels),
                       stride});
    image_rows_.push_back(row);
    pixels += aligned(pixel_bytes(size_of_part(image)));
    files += aligned(image.file.size());
  }
}

bool HardwareDecoder::Core::next(Chunk& chunk, cudaStream_t stream, const std::stop_token& stop) {
  const Range range = next_range();
  if (range.first == range.last) {
    if (found_ != nullptr) found_->add(rows_.size());
    return false;
  }
  const CaptureModeGuard guard;
  lane_ = &lanes_[turn_];
  turn_ = (turn_ + 1) % lanes_.size();
  {
    const ScopedRange wait(WaitForLane{}, turn_);
    lane_->free.synchronize();
  }
  lay_out(range);
  const std::size_t rows = range.last - range.first;
  try {
    decode(stop);
    hand_over(rows, stream);
  } catch (...) {
    cudaStreamSynchronize(lane_->stream.get());  // Nothing else indicates that the lane is in use.
    throw;
  }
  chunk = {{reinterpret_cast<const std::uint8_t*>(lane_->device.get()), 0,
            reinterpret_cast<const ImageGeometry*>(lane_->device.get()),
            static_cast<std::int64_t>(rows)},
           static_cast<std::int64_t>(range.first)};
  return true;
}

/// Copies the geometry and the CPU's images after the engine's work, and makes `stream` wait for
/// it.
void HardwareDecoder::Core::hand_over(std::size_t rows, cudaStream_t stream) {
  const std::size_t bytes = cpu_rows_.empty() ? rows * sizeof(ImageGeometry)
                                              : geometry_bytes() + cpu_rows_.size() * room_;
  penstock::detail::check(cudaMemcpyAsync(lane_->device.get(), lane_->staging.get(), bytes,
                                          cudaMemcpyHostToDevice, lane_->stream.get()),
                          "cudaMemcpyAsync", bytes);
  lane_->ready.record(lane_->stream.get());
  lane_->ready.make_wait(stream);
  lane_->free.record(stream);  // This is for the case that no kernel follows.
}

// ---- Decoding -----------------------------------------------------------------------------------

/// Runs both decoders at the same time.
void HardwareDecoder::Core::decode(const std::stop_token& stop) {
  struct Finish {
    DecodeTeam& team;
    ~Finish() { team.finish(); }
  };
  stop_ = &stop;
  const auto task = [](void* core, std::int64_t number, RowDecoder& decoder) {
    static_cast<Core*>(core)->decode_by_cpu(number, decoder);
  };
  team_.start(static_cast<std::int64_t>(cpu_rows_.size()), task, this);
  {
    const Finish finish{team_};  // The tasks use this chunk, even if the engine throws.
    if (!images_.empty()) decode_by_engine(0, images_.size());
  }
  for (const std::size_t row : cpu_rows_) count(results_[row].by);
}

/// If the engine rejects a batch, each half is tried. Images that it cannot decode remain for the
/// CPU.
void HardwareDecoder::Core::decode_by_engine(std::size_t first, std::size_t number) {
  const ScopedRange range(DecodeByEngine{}, number);
  if (lane_->engine->decode(std::span(images_).subspan(first, number), lane_->stream.get())) {
    for (std::size_t i = first; i < first + number; ++i) {
      results_[image_rows_[i]].by = DecodedBy::hardware;
      count(DecodedBy::hardware);
    }
    return;
  }
  if (number == 1) return give_back(first);
  lane_->stream.synchronize();
  decode_by_engine(first, number / 2);
  lane_->stream.synchronize();  // The engine is busy until then.
  decode_by_engine(first + number / 2, number - number / 2);
}

void HardwareDecoder::Core::give_back(std::size_t image) {
  const std::size_t row = image_rows_[image];
  returned_.push_back(row);
  geometry_[row - first_] = {};
  ++stats_.returned;
  if (options_.totals != nullptr) options_.totals->returned.fetch_add(1, std::memory_order_relaxed);
}

/// Runs on any thread of the team. `task` is an index into cpu_rows_.
void HardwareDecoder::Core::decode_by_cpu(std::int64_t task, RowDecoder& decoder) {
  const auto number = static_cast<std::size_t>(task);
  const std::size_t row = cpu_rows_[number], offset = geometry_bytes() + number * room_;
  try {
    auto* const room = reinterpret_cast<std::uint8_t*>(lane_->staging.get() + offset);
    decoder.open(rows_[row].file);
    ImageGeometry geometry = decoder.decode(rows_[row].view, {room, room_}, *stop_);
    geometry.offset = static_cast<std::int64_t>(offset);
    geometry_[row - first_] = geometry;
    results_[row].by = DecodedBy::cpu;
  } catch (const std::exception& error) {
    fail(row, error.what());
  }
}

// ---- HardwareDecoder ----------------------------------------------------------------------------

HardwareDecoder::HardwareDecoder(const HardwareOptions& options, const MakeEngine& make)
    : core_(std::make_unique<Core>(options, make)) {}
HardwareDecoder::HardwareDecoder(HardwareDecoder&&) noexcept = default;
HardwareDecoder& HardwareDecoder::operator=(HardwareDecoder&&) noexcept = default;
HardwareDecoder::~HardwareDecoder() = default;

HardwareStats HardwareDecoder::stats() const {
  return core_->stats();
}
double HardwareDecoder::cpu_share() const {
  return core_->share();
}
std::string HardwareDecoder::backend() const {
  return core_->backend();
}
std::string HardwareDecoder::why_no_engine() const {
  return core_->why_not();
}
void HardwareDecoder::begin(std::span<const JpegItem> items, ImageSize output) {
  core_->begin(items, output);
}
ImageSize HardwareDecoder::size_of(std::size_t row) const {
  return core_->size_of(row);
}
void HardwareDecoder::set_view(std::size_t row, const View& view) {
  core_->set_view(row, view);
}
bool HardwareDecoder::next(Chunk& chunk, cudaStream_t stream, const std::stop_token& stop) {
  return core_->next(chunk, stream, stop);
}
void HardwareDecoder::end(cudaStream_t stream) {
  core_->end(stream);
}
std::span<const ImageResult> HardwareDecoder::results() const {
  return core_->results();
}

}  // namespace penstock::images
