#include "cache/manifest/web_sample.h"

#include <utility>

#include "cache/manifest/format.h"

namespace quiver::cache {

namespace {

// Python's '.' ends at a line feed: no folder behind one counts as such.
std::size_t last_slash(std::string_view name, std::size_t before) {
  return before == 0 ? name.npos : name.substr(0, name.find('\n')).rfind('/', before - 1);
}

// webdataset's skip_meta, __[^/]*__($|/) at the beginning.
bool is_meta(std::string_view name) {
  std::string_view first = name.substr(0, name.find('/'));
  const bool alone = first.size() == name.size();
  if (alone && first.ends_with('\n')) first.remove_suffix(1);  // so is Python's '$'
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

}  // namespace

std::optional<SplitName> base_plus_ext(std::string_view name) {
  // The expression takes the longest folder first, and gives up parts of it where the file's own
  // name begins with a dot: "a/.x" is "a/" and "x".
  for (std::size_t slash = last_slash(name, name.size());; slash = last_slash(name, slash)) {
    const std::size_t begin = slash == name.npos ? 0 : slash + 1;
    const std::size_t dot = name.find('.', begin);
    if (dot == name.npos || name.find('/', dot) != name.npos) return std::nullopt;
    if (dot > begin) return SplitName{name.substr(0, dot), name.substr(dot + 1)};
    if (slash == name.npos) return std::nullopt;
  }
}

std::optional<SplitName> file_of_sample(const TarMember& member) {
  if (!member.regular || is_meta(member.name)) return std::nullopt;
  return base_plus_ext(member.name);
}

std::optional<WebSample> SampleGrouper::add(const TarMember& member) {
  const auto file = file_of_sample(member);
  if (!file) return std::nullopt;
  if (open_ && open_->stem == file->stem) {
    open_->end = member.end();
    return std::nullopt;
  }
  return std::exchange(open_, WebSample{std::string(file->stem), member.begin, member.end()});
}

Result<SampleFiles> take_apart(ByteSpan item, std::string_view name) {
  SampleFiles sample;
  TarReader reader(name, item.size());
  while (const auto need = reader.need()) {
    const auto member = TRY(reader.give(item.subspan(need->offset, need->length)));
    if (!member) continue;
    const auto file = file_of_sample(*member);
    if (!file) continue;
    if (sample.files.empty()) sample.stem = file->stem;
    if (sample.stem != file->stem) {
      return error(Code::kCorrupt, "{} has files of more than one sample; digest its archive again",
                   format::printable(name));
    }
    sample.files.push_back(
        {std::string(file->extension), item.subspan(member->data, member->length)});
  }
  if (sample.files.empty()) {
    return error(Code::kCorrupt, "{} has no file of a sample; digest its archive again",
                 format::printable(name));
  }
  return sample;
}

}  // namespace quiver::cache
