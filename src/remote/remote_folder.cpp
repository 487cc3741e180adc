// SPDX-License-Identifier: Apache-2.0
#include "remote_folder.hpp"

#include <algorithm>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <stdexcept>
#include <utility>

#include "object_note.hpp"
#include "part_group.hpp"
#include "renewal.hpp"
#include "url.hpp"
#include "wrong_checksum.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

/// The first request brings a file of up to this size whole, or one for which `scratch` has room.
constexpr std::size_t kFirstBytes = std::size_t{256} << 10;

}  // namespace

RemoteFolder::RemoteFolder(std::shared_ptr<Session> session, Location prefix,
                           const std::string& url)
    : session_(std::move(session)),
      prefix_(std::move(prefix)),
      url_(url.substr(0, url.find('?'))),
      name_(prefix_.printable()),
      signatures_(session_->stores.signatures(prefix_)) {}

RemoteFolder::~RemoteFolder() {
  if (!session_->owner.is_this()) return;
  for (const auto& [file, object] : announced_) session_->ahead.forget(*object);
}

RemoteObject RemoteFolder::object_of(std::string_view file) const {
  RemoteObject object;
  object.name = name_ + std::string(file);
  if (prefix_.service() == Service::http) {
    object.url = url_ + percent_encoded(file, true);
    object.authorizer = session_->options.authorizer;
  } else {
    object.url = prefix_.object(prefix_.key() + std::string(file)).url();
    object.at_s3 = prefix_.service() == Service::s3;
    object.authorizer = authorizer_of(signatures_);
  }
  return object;
}

std::span<const std::byte> RemoteFolder::read(std::string_view file,
                                              std::vector<std::byte>& scratch) const {
  session_->require_own_process();
  Object object = take_announced(file);
  if (!object) object = std::make_shared<const RemoteObject>(object_of(file));
  return with_credentials(signatures_.get(), [&]() -> std::span<const std::byte> {
    if (Cache* const cache = session_->cache_of_reads())
      return read_by_cache(*cache, object, scratch);
    return fetch(object, 0, scratch)->bytes;
  });
}

/// The object that is fetched ahead for a read of the file; nullptr: none is.
RemoteFolder::Object RemoteFolder::take_announced(std::string_view file) const {
  const std::lock_guard lock(mutex_);
  if (announced_.empty()) return nullptr;
  const auto found = announced_.find(std::string(file));
  if (found == announced_.end()) return nullptr;
  Object object = std::move(found->second);
  announced_.erase(found);
  return object;
}

/// Brings the first bytes of the object to `scratch`, from `begin` on, and makes room there for all
/// of them. nullopt: the object still has the ETag that it had.
std::optional<Ahead::Block::Opened> RemoteFolder::open(const Object& object, std::size_t begin,
                                                       std::vector<std::byte>& scratch) const {
  const auto room = [&](std::uint64_t total) {
    const std::uint64_t end = std::max(total, begin + total);  // no overflow
    return detail::room_in(scratch, end).subspan(begin);
  };
  std::optional<Ahead::Block::Opened> opened = session_->ahead.take_whole(*object, room);
  if (!opened) {
    if (scratch.size() < begin + kFirstBytes) scratch.resize(begin + kFirstBytes);
    PartGroup group(session_->transfers, object);
    group.open_whole(std::span(scratch).subspan(begin));
    group.wait();
    if (group.unchanged()) return std::nullopt;
    room(group.total());
    opened = Ahead::Block::Opened{group.received(), group.total(), group.etag(), group.checksum()};
  }
  const std::lock_guard lock(mutex_);
  usual_size_.add(opened->total);
  return opened;
}

/// Reads the object into `scratch`, from `begin` on. nullopt: it still has the ETag that it had.
std::optional<RemoteFolder::Fetched> RemoteFolder::fetch(const Object& object, std::size_t begin,
                                                         std::vector<std::byte>& scratch) const {
  for (int attempt = 1;; ++attempt) {
    const auto first = open(object, begin, scratch);
    if (!first) return std::nullopt;
    const auto all = std::span(scratch).subspan(begin, static_cast<std::size_t>(first->total));
    const Fetched fetched{all, first->etag};
    if (first->received == all.size()) return fetched;
    // Requests that have ended may still hold the object: what is known by now is in another one.
    const auto opened = std::make_shared<RemoteObject>(*object);
    opened->size = first->total;
    opened->etag = first->etag;
    PartGroup rest(session_->transfers, opened);
    rest.ask(first->received, all.subspan(first->received));
    rest.wait();
    if (!first->checksum) return fetched;
    Counters& counters = session_->transfers.counters;
    const std::uint32_t sum = detail::crc32c(all);
    count(sum == *first->checksum ? counters.verified : counters.damaged);
    if (sum == *first->checksum) return fetched;
    // From now on there is room for all of it in one answer.
    if (attempt == session_->options.attempts)
      throw RemoteError(wrong_checksum(sum, *first->checksum), object->name, 200, attempt);
  }
}

/// In the cache an object follows its note. The first piece of both is found by the URL alone; the
/// others have the version that the note says.
std::span<const std::byte> RemoteFolder::read_by_cache(Cache& cache, Object object,
                                                       std::vector<std::byte>& scratch) const {
  constexpr std::size_t kNote = ObjectNote::note_bytes;
  const ObjectVersion id = object_id(object->url);
  const std::optional<Known> before = known(id);
  CacheKey first{id, 0, 0};
  const bool has_first = cache.read(first, scratch);
  const std::optional<ObjectNote> note =
      has_first ? read_note(std::span(scratch).first(first.bytes)) : std::nullopt;
  std::optional<Known> here = before;
  if (note) here = Known{note->version, note->size};
  bool is_whole = note.has_value();
  if (here) {
    // The others are read in any case, for the policy.
    const CachePieces pieces(0, kNote + here->size, cache.slot_bytes());
    is_whole = is_whole && first.bytes == pieces.begin(1);
    const std::span<std::byte> all = detail::room_in(scratch, kNote + here->size);
    for (std::uint64_t i = 1; i < pieces.count(); ++i) {
      const CacheKey key = pieces.key(here->version, i);
      is_whole =
          cache.read(key, all.subspan(static_cast<std::size_t>(key.offset), key.bytes)) && is_whole;
    }
  }
  std::size_t begin = kNote;
  if (is_whole) {
    session_->ahead.forget(*object);  // It may have come to the cache after it was announced.
    const std::size_t size = static_cast<std::size_t>(here->size);
    if (before && before->version == here->version) return std::span(scratch).subspan(kNote, size);
    auto known_one = std::make_shared<RemoteObject>(*object);
    known_one->etag = note->etag;
    object = std::move(known_one);
    begin = (kNote + size + 63) / 64 * 64;  // What comes in place of it does not overwrite it.
  }
  const std::optional<Fetched> fetched = fetch(object, begin, scratch);
  if (!fetched) {
    remember(id, *here);
    return std::span(scratch).subspan(kNote, static_cast<std::size_t>(here->size));
  }
  const std::uint64_t size = fetched->bytes.size();
  const auto version = object_version(object->url, fetched->etag, size);
  if (!version || fetched->etag.size() > ObjectNote::most_etag || !cache.takes(size))
    return fetched->bytes;
  const std::span<std::byte> all =
      std::span(scratch).subspan(begin - kNote, kNote + fetched->bytes.size());
  write_note(*version, size, fetched->etag, all);
  const CachePieces pieces(0, all.size(), cache.slot_bytes());
  for (std::uint64_t i = 0; i < pieces.count(); ++i) {
    const CacheKey key = pieces.key(i == 0 ? id : *version, i);
    const bool is_of_another = i == 0 && has_first && !(note && note->version == *version);
    cache.offer(key, all.subspan(static_cast<std::size_t>(key.offset), key.bytes), is_of_another);
  }
  remember(id, {*version, size});
  return fetched->bytes;
}

std::optional<RemoteFolder::Known> RemoteFolder::known(const ObjectVersion& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void RemoteFolder::remember(const ObjectVersion& id, const Known& object) const {
  const std::lock_guard lock(mutex_);
  known_.insert_or_assign(id, object);
}

void RemoteFolder::will_need(std::span<const std::string_view> files,
                             std::chrono::steady_clock::time_point due) const noexcept try {
  if (!session_->owner.is_this()) return;
  if (due == later)
    tell_cache(files);
  else
    fetch_ahead(files, due);
} catch (const std::exception&) {  // A hint has no errors.
}

void RemoteFolder::tell_cache(std::span<const std::string_view> files) const {
  Cache* const cache = session_->cache_of_reads();
  if (cache == nullptr) return;
  for (const std::string_view file : files) {
    const ObjectVersion id = object_id(object_of(file).url);
    cache->will_read({id, 0, 0});
    const std::optional<Known> object = known(id);
    if (!object) continue;
    const CachePieces pieces(0, ObjectNote::note_bytes + object->size, cache->slot_bytes());
    for (std::uint64_t i = 1; i < pieces.count(); ++i)
      cache->will_read(pieces.key(object->version, i));
  }
}

void RemoteFolder::fetch_ahead(std::span<const std::string_view> files, Time due) const {
  Cache* const cache = session_->cache_of_reads();
  Ahead& ahead = session_->ahead;
  for (const std::string_view file : files) {
    const auto object = std::make_shared<const RemoteObject>(object_of(file));
    // What is in the cache needs one answer without a body at most.
    if (cache != nullptr && cache->will_need({object_id(object->url), 0, 0})) continue;
    std::size_t room = 0;
    {
      const std::lock_guard lock(mutex_);
      if (announced_.size() >= look_through_) {  // Of some, nobody came to read the bytes.
        std::erase_if(announced_, [&](const auto& entry) { return !ahead.has(*entry.second); });
        look_through_ = std::max<std::size_t>(1024, 2 * announced_.size());
      }
      Object& announced = announced_[std::string(file)];
      if (announced && ahead.has(*announced)) continue;
      announced = object;
      room = usual_size_.room();
    }
    if (ahead.fetch_whole(object, room, due)) continue;
    take_announced(file);
    return;
  }
}

}  // namespace penstock::remote
