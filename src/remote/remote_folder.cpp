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

namespace penstock::remote {
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
  return with_credentials(signatures_.get(), [&]() -> std::span<const std::byte> {
    if (Cache* const cache = session_->cache_of_reads())
      return read_by_cache(*cache, object_of(file), scratch);
    return fetch(std::make_shared<const RemoteObject>(object_of(file)), 0, scratch)->bytes;
  });
}

/// Reads the object into `scratch`, from `begin` on. nullopt: it still has the ETag that it had.
std::optional<RemoteFolder::Fetched> RemoteFolder::fetch(const Object& object, std::size_t begin,
                                                         std::vector<std::byte>& scratch) const {
  for (int attempt = 1;; ++attempt) {
    if (scratch.size() < begin + kFirstBytes) scratch.resize(begin + kFirstBytes);
    PartGroup first(session_->transfers, object);
    first.open_whole(std::span(scratch).subspan(begin));
    first.wait();
    if (first.unchanged()) return std::nullopt;
    const std::size_t received = first.received();
    const std::uint64_t end = std::max(first.total(), begin + first.total());  // no overflow
    const std::span<std::byte> all = detail::room_in(scratch, end).subspan(begin);
    const Fetched fetched{all, first.etag()};
    if (received == all.size()) return fetched;
    // Requests that have ended may still hold the object: what is known by now is in another one.
    const auto opened = std::make_shared<RemoteObject>(*object);
    opened->size = first.total();
    opened->etag = first.etag();
    PartGroup rest(session_->transfers, opened);
    rest.ask(received, all.subspan(received));
    rest.wait();
    if (!first.checksum()) return fetched;
    Counters& counters = session_->transfers.counters;
    const std::uint32_t sum = detail::crc32c(all);
    count(sum == *first.checksum() ? counters.verified : counters.damaged);
    if (sum == *first.checksum()) return fetched;
    // From now on there is room for all of it in one answer.
    if (attempt == session_->options.attempts)
      throw RemoteError(wrong_checksum(sum, *first.checksum()), object->name, 200, attempt);
  }
}

/// In the cache an object follows its note. The first piece of both is found by the URL alone; the
/// others have the version that the note says.
std::span<const std::byte> RemoteFolder::read_by_cache(Cache& cache, RemoteObject object,
                                                       std::vector<std::byte>& scratch) const {
  constexpr std::size_t kNote = ObjectNote::note_bytes;
  const ObjectVersion id = object_id(object.url);
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
    const std::size_t size = static_cast<std::size_t>(here->size);
    if (before && before->version == here->version) return std::span(scratch).subspan(kNote, size);
    object.etag = note->etag;
    begin = (kNote + size + 63) / 64 * 64;  // What comes in place of it does not overwrite it.
  }
  const auto asked = std::make_shared<const RemoteObject>(std::move(object));
  const std::optional<Fetched> fetched = fetch(asked, begin, scratch);
  if (!fetched) {
    remember(id, *here);
    return std::span(scratch).subspan(kNote, static_cast<std::size_t>(here->size));
  }
  const std::uint64_t size = fetched->bytes.size();
  const auto version = object_version(asked->url, fetched->etag, size);
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
  if (due != later || !session_->owner.is_this()) return;
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
} catch (const std::exception&) {  // A hint has no errors.
}

}  // namespace penstock::remote
