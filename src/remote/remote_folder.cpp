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
  PartGroup first(session_->transfers, object);
  first.open_whole(scratch);
  first.wait();
  const std::size_t received = first.received();
  const std::span<std::byte> all = detail::room_in(scratch, first.total());
  if (received == all.size()) return all;
  // Requests that have ended may still hold the object: what is known by now is in another one.
  object = std::make_shared<RemoteObject>(*object);
  object->size = first.total();
  object->etag = first.etag();
  PartGroup rest(session_->transfers, object);
  rest.ask(received, all.subspan(received));
  rest.wait();
  return all;
}

}  // namespace penstock::remote
