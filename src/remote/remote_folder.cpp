// SPDX-License-Identifier: Apache-2.0
#include "remote_folder.hpp"

#include <penstock/detail/storage/store_file.hpp>
#include <stdexcept>
#include <utility>

#include "part_group.hpp"
#include "renewal.hpp"
#include "url.hpp"

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
    object.authorizer = authorizer_of(signatures_);
  }
  return object;
}

std::span<const std::byte> RemoteFolder::read(std::string_view file,
                                              std::vector<std::byte>& scratch) const {
  session_->require_own_process();
  return with_credentials(signatures_.get(), [&] { return read_object(object_of(file), scratch); });
}

std::span<const std::byte> RemoteFolder::read_object(RemoteObject opened,
                                                     std::vector<std::byte>& scratch) const {
  if (scratch.size() < kFirstBytes) scratch.resize(kFirstBytes);
  auto object = std::make_shared<RemoteObject>(std::move(opened));
  Cache* const cache = session_->cache_of_reads();
  ObjectVersion id{};
  if (cache != nullptr) {
    id = object_id(object->url);
    if (const std::optional<Known> here = known(id); here && read_from(*cache, *here, scratch))
      return std::span(scratch).first(static_cast<std::size_t>(here->size));
  }
  PartGroup first(session_->transfers, object);
  first.open_whole(scratch);
  first.wait();
  const std::size_t received = first.received();
  const std::span<std::byte> all = detail::room_in(scratch, first.total());
  std::optional<Known> read;  // is kept
  if (cache != nullptr && cache->takes(first.total())) {
    if (const auto version = object_version(object->url, first.etag(), first.total()))
      read = Known{*version, first.total()};
  }
  if (received < all.size()) {
    // Requests that have ended may still hold the object: what is known by now is in another one.
    object = std::make_shared<RemoteObject>(*object);
    object->size = first.total();
    object->etag = first.etag();
    PartGroup rest(session_->transfers, object);
    rest.ask(received, all.subspan(received));
    rest.wait();
  }
  if (!read) return all;
  const CachePieces pieces(0, read->size, cache->slot_bytes());
  for (std::uint64_t i = 0; i < pieces.count(); ++i) {
    const CacheKey key = pieces.key(read->version, i);
    cache->offer(key, all.subspan(static_cast<std::size_t>(key.offset), key.bytes));
  }
  const std::lock_guard lock(mutex_);
  known_.insert_or_assign(id, *read);
  return all;
}

std::optional<RemoteFolder::Known> RemoteFolder::known(const ObjectVersion& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

/// False: the cache has not all of it.
bool RemoteFolder::read_from(Cache& cache, const Known& object,
                             std::vector<std::byte>& scratch) const {
  const CachePieces pieces(0, object.size, cache.slot_bytes());
  const std::span<std::byte> all = detail::room_in(scratch, object.size);
  bool is_whole = true;
  for (std::uint64_t i = 0; i < pieces.count(); ++i) {
    const CacheKey key = pieces.key(object.version, i);
    // Also those behind a piece that is missing are read now, for the policy.
    is_whole =
        cache.read(key, all.subspan(static_cast<std::size_t>(key.offset), key.bytes)) && is_whole;
  }
  return is_whole;
}

void RemoteFolder::will_need(std::span<const std::string_view> files,
                             std::chrono::steady_clock::time_point due) const noexcept try {
  if (due != later || !session_->owner.is_this()) return;
  Cache* const cache = session_->cache_of_reads();
  if (cache == nullptr) return;
  for (const std::string_view file : files) {
    const std::optional<Known> object = known(object_id(object_of(file).url));
    if (!object) continue;
    const CachePieces pieces(0, object->size, cache->slot_bytes());
    for (std::uint64_t i = 0; i < pieces.count(); ++i)
      cache->will_read(pieces.key(object->version, i));
  }
} catch (const std::exception&) {  // A hint has no errors.
}

}  // namespace penstock::remote
