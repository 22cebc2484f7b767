// The daemon's own bounds. What a user may want to change is in base/quiver_settings.h.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "base/units.h"

namespace quiver::cache::limits {

inline constexpr Duration kHeartbeat = std::chrono::milliseconds(100);
inline constexpr Duration kLookBusy = std::chrono::milliseconds(10);  // at boards, with work to do
inline constexpr Duration kLookIdle = std::chrono::seconds(1);        // when everything is here
// A job that has taken nothing for so long, and for thrice what is usual with it, stands still.
inline constexpr Duration kStandsStill = std::chrono::seconds(1);
inline constexpr Duration kEvictionWait = std::chrono::seconds(10);  // of who asked for one
inline constexpr Duration kEvictEvery = std::chrono::milliseconds(20);
inline constexpr Duration kRoomPause = std::chrono::milliseconds(20);  // of a fetch without room
inline constexpr int kRoomTries = 100;
inline constexpr int kUrgentAfter = 5;  // tries of what somebody waits for
inline constexpr int kMoveTries = 4;
inline constexpr Duration kSocketLook = std::chrono::seconds(1);
inline constexpr Duration kKeepUnused = std::chrono::seconds(60);  // a dataset without a session
inline constexpr Duration kBuildWait = std::chrono::seconds(60);  // for another's look at a dataset
inline constexpr Duration kRememberFailure = std::chrono::seconds(5);
inline constexpr std::uint64_t kNearBudget = 64;  // a change by less than this part divides nothing
inline constexpr double kMostRate = 1e12;         // bytes/s: who says more of a job is not believed
inline constexpr Duration kNewWindow = std::chrono::seconds(10);  // it is computed anew this often
inline constexpr Duration kRetryLeast = std::chrono::milliseconds(500);
inline constexpr Duration kRetryMost = std::chrono::seconds(30);
inline constexpr int kStagingAttempts = 5;                 // of one item, beyond the origin's own
inline constexpr std::uint32_t kQueuedFetches = 1u << 16;  // directed ones, of all sessions
inline constexpr std::uint32_t kRememberedFailures = 4096;
inline constexpr std::uint32_t kMovesAtOnce = 64;     // from staging to what is pinned
inline constexpr std::uint64_t kFetchMemoryPart = 4;  // of memory_limit: what is being fetched
// Of memory_limit: what all fetching threads keep for the next item, and what is being inserted.
inline constexpr std::uint64_t kKeptBuffersPart = 16, kInsertMemoryPart = 16;
inline constexpr Bytes kMemoryPerItem = Bytes(54);                   // of the store's catalog
inline constexpr Duration kTroublePasses = std::chrono::seconds(5);  // without another failure
inline constexpr Duration kWarnAgain = std::chrono::minutes(1);      // of the same disk
inline constexpr Duration kShrinkAtOnce =
    std::chrono::milliseconds(100);                                // then others have a turn
inline constexpr Duration kRescanEvery = std::chrono::seconds(5);  // while items are re-verified
inline constexpr std::uint32_t kRescanPerTick = 20'000;            // items
inline constexpr std::uint32_t kOrdersPerTurn = 4096;
inline constexpr std::uint32_t kItemsPerFetch = 65'536;  // of one request
inline constexpr std::uint32_t kDatasetsPerSession = 64;
inline constexpr Bytes kDiskReserve =
    Bytes(32 << 10);                 // of the budget, beside the store's own files
inline constexpr int kScrapers = 4;  // of metrics, at a time
inline constexpr Duration kScrapePatience = std::chrono::seconds(2);  // with one of them
inline constexpr std::size_t kScrapeRequest = 8 << 10;                // bytes
inline constexpr Bytes kInsertSegment = Bytes(64 << 20);

}  // namespace quiver::cache::limits
