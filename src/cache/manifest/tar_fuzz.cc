// Any bytes as an archive: its members lie within it, one behind the other, and each sample says
// alone what the archive says of it. Checksums would keep a fuzzer out, so a second try mends them.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "cache/manifest/web_sample.h"

namespace {

using namespace quiver;
using namespace quiver::cache;

void mend_checksum(std::string& archive, std::uint64_t at) {
  if (archive.size() - at < kTarBlock || archive[at + 124] == '\0') return;
  char* const field = archive.data() + at + 148;
  std::memset(field, ' ', 8);
  unsigned sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) sum += static_cast<unsigned char>(archive[at + i]);
  fmt::format_to_n(field, 7, "{:06o}", sum);
  field[6] = '\0';
}

void check_sample(const std::string& archive, const WebSample& sample,
                  const std::vector<TarMember>& members) {
  CHECK(sample.begin < sample.end && sample.end <= archive.size());
  const auto bytes = as_bytes(archive).subspan(sample.begin, sample.end - sample.begin);
  const SampleFiles apart = take_apart(bytes, "fuzz").value();
  CHECK(apart.stem == sample.stem);
  std::size_t n = 0;
  for (const TarMember& member : members) {
    const auto file = file_of_sample(member);
    if (!file || member.begin < sample.begin || member.begin >= sample.end) continue;
    CHECK(n < apart.files.size() && apart.files[n].extension == file->extension);
    const auto lies_at = apart.files[n].bytes.data() - as_bytes(archive).data();
    CHECK(static_cast<std::uint64_t>(lies_at) == member.data);
    CHECK(apart.files[n].bytes.size() == member.length);
    ++n;
  }
  CHECK(n == apart.files.size());
}

void read(std::string archive, bool mend) {
  TarReader reader("fuzz", archive.size());
  SampleGrouper grouper;
  std::vector<TarMember> members;
  std::vector<WebSample> samples;
  bool of_header = true;
  while (const auto need = reader.need()) {
    CHECK(need->offset <= archive.size() && need->length <= archive.size() - need->offset);
    if (mend && of_header && need->length == kTarBlock) mend_checksum(archive, need->offset);
    const auto member = reader.give(as_bytes(archive).subspan(need->offset, need->length));
    if (!member) return;
    // An extending header has content, which is no header.
    const auto after = reader.need();
    of_header = *member || !of_header || !after || after->offset == need->offset;
    if (!*member) continue;
    CHECK(members.empty() || (*member)->begin >= members.back().end());
    CHECK((*member)->begin < (*member)->data && (*member)->end() <= archive.size());
    if (auto sample = grouper.add(**member)) samples.push_back(*std::move(sample));
    members.push_back(**member);
  }
  if (auto sample = grouper.finish()) samples.push_back(*std::move(sample));
  for (const WebSample& sample : samples) check_sample(archive, sample, members);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string archive(reinterpret_cast<const char*>(data), size);
  read(archive, false);
  read(archive, true);
  return 0;
}
