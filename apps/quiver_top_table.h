// What `quiver top` shows, from what the daemon says of itself. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quiver {

// {"daemon": {…}, "datasets": [{…, "why": […]}], "jobs": [{…, "why": […]}]}: the object of --json.
nlohmann::json top_of(const nlohmann::json& status);
// The same for people: two tables, and the sentences that say why.
std::vector<std::string> top_lines(const nlohmann::json& top);

// As much of the text as fits into so many columns, in whole characters (UTF-8).
std::string_view first_columns(std::string_view text, std::size_t columns);

}  // namespace quiver
