// SPDX-License-Identifier: Apache-2.0
#pragma once

// Image files at a server, by penstock::remote. All of a program share one client, whose keys come
// from the environment.
//
// A folder needs a list of its files. It is the object <folder>.list beside the folder, as
// remote::Client::save_list() writes it. Without one, a folder of s3:// or gs:// is listed the
// first time, and the list is kept in lists/ of the user's cache; a program says on its standard
// error where it is.

#include <optional>
#include <string>
#include <vector>

#include "image_files.hpp"

namespace examples {

/// As open_image_files(), for URLs.
ImageFiles open_image_urls(const std::vector<std::string>& urls);

/// As open_part(), for a URL.
std::optional<ImageFiles> open_part_of_url(const std::string& url, const std::string& part);

}  // namespace examples
