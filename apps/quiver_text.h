// How the commands write numbers, and the one JSON object of --json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/units.h"

namespace quiver {

std::string count(std::uint64_t number);                      // "1,200"
std::string count_of(std::uint64_t number, const char* one);  // "1 item", "1,200 items"
std::string part_of(Bytes part, Bytes whole);  // "11.6 of 11.9 MB", "900 kB of 1.2 GB"
// What jobs are called is theirs to say: nothing of it reaches the terminal as a command.
std::string plain(std::string text);
void print_json(const nlohmann::json& object);  // in one line; what is no UTF-8 is replaced

}  // namespace quiver
