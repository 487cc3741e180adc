// SPDX-License-Identifier: Apache-2.0
#include <penstock/trace/views.hpp>

#include <stdexcept>
#include <string>
#include <string_view>

#include "activity.hpp"
#include "page/columns.hpp"
#include "page/sources.hpp"
#include "page/summary.hpp"
#include "programs/output_file.hpp"
#include "stages.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

using detail::EventColumns;
using programs::OutputFile;

/// The data are in elements that browsers neither run nor show, so no data are ever executed.
void write_column(OutputFile& file, std::string_view name, const std::string& column) {
  file.write("<script type=\"text/plain\" id=\"column-" + std::string(name) + "\">");
  file.write(detail::base64(column));
  file.write("</script>\n");
}

void write_data(OutputFile& file, const Timeline& timeline, const Report& report,
                const std::vector<Finding>& findings) {
  const detail::Activity activity(timeline);
  const EventColumns columns = detail::columns(activity, detail::stages(activity));
  file.write("<script type=\"application/json\" id=\"summary\">");
  file.write(detail::page_summary(timeline, report, findings, columns.classes));
  file.write("</script>\n");
  write_column(file, "classes", columns.classes_of);
  write_column(file, "begins", columns.begins);
  write_column(file, "durations", columns.durations);
  write_column(file, "values", columns.values);
  write_column(file, "correlations", columns.correlations);
}

}  // namespace

void write_page(const Timeline& timeline, const Report& report,
                const std::vector<Finding>& findings, const std::filesystem::path& path) {
  OutputFile file(path, programs::can_be_made_again);
  std::string_view rest = detail::kPage;
  const auto write_until = [&](std::string_view place) {
    const std::size_t at = rest.find(place);
    if (at == std::string_view::npos)
      throw std::logic_error("page.html has no " + std::string(place));
    file.write(rest.substr(0, at));
    rest.remove_prefix(at + place.size());
  };
  write_until("{{style}}");
  file.write(detail::kStyle);
  write_until("{{data}}");
  write_data(file, timeline, report, findings);
  write_until("{{script}}");
  for (const std::string_view script : detail::kScripts) file.write(script);
  file.write(rest);
  file.commit();
}

}  // namespace penstock::trace
