#include "checkpoint/expert_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace deltafin {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kK3Record = 17'547'264;

// The drive of every page; -1 where no piece or more than one is.
std::vector<int> DriveOfPages(std::span<const CutPiece> pieces, uint64_t record_bytes) {
  std::vector<int> drives(record_bytes / kPage, -2);
  for (const CutPiece& piece : pieces) {
    EXPECT_EQ(piece.begin % kPage, 0u);
    EXPECT_EQ(piece.end % kPage, 0u);
    EXPECT_LT(piece.begin, piece.end);
    EXPECT_LE(piece.end, record_bytes);
    for (uint64_t page = piece.begin / kPage; page < piece.end / kPage; ++page)
      drives[page] = drives[page] == -2 ? piece.drive : -1;
  }
  for (int& drive : drives) drive = drive == -2 ? -1 : drive;
  return drives;
}

std::vector<uint64_t> PagesOfDrives(const std::vector<int>& pages, size_t drives) {
  std::vector<uint64_t> counts(drives, 0);
  for (const int drive : pages) ++counts.at(static_cast<size_t>(drive));
  return counts;
}

std::vector<double> RandomRates(std::mt19937_64& random, size_t most) {
  std::vector<double> rates(1 + random() % most);
  for (double& rate : rates) rate = 1e8 * static_cast<double>(1 + random() % 1000);
  return rates;
}

TEST(CutRecord, EveryByteIsOnExactlyOneDriveInProportionToItsSpeed) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<double> rates = RandomRates(random, 12);
    const uint64_t record = kPage * (1 + random() % 5000);
    const std::vector<CutPiece> pieces = CutRecord(record, kPage, rates);
    const std::vector<int> pages = DriveOfPages(pieces, record);
    ASSERT_EQ(std::count(pages.begin(), pages.end(), -1), 0);
    ASSERT_TRUE(std::is_sorted(pages.begin(), pages.end())) << "one contiguous piece a drive, in their order";
    const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
    const std::vector<uint64_t> counts = PagesOfDrives(pages, rates.size());
    for (size_t d = 0; d < rates.size(); ++d) {
      const double exact = static_cast<double>(pages.size()) * rates[d] / sum;
      ASSERT_LT(std::abs(static_cast<double>(counts[d]) - exact), 1.0);
    }
  }
}

TEST(CutRecord, FourDrivesOfTheLadderFinishK3sRecordTogether) {
  const std::vector<double> rates = {13.6e9, 7.1e9, 7.1e9, 5.4e9};
  double slowest = 0;
  for (const CutPiece& piece : CutRecord(kK3Record, kPage, rates))
    slowest = std::max(slowest, static_cast<double>(piece.bytes()) / rates[static_cast<size_t>(piece.drive)]);
  EXPECT_LT(slowest / (static_cast<double>(kK3Record) / 33.2e9), 1.001);
}

TEST(CutRecord, TheLargestRemainderGetsTheOddPageAndTiesGoToTheLowerDrive) {
  using Pieces = std::vector<CutPiece>;
  const std::vector<double> equal = {1, 1, 1};
  EXPECT_EQ(CutRecord(4 * kPage, kPage, equal),
            (Pieces{{0, 0, 2 * kPage}, {1, 2 * kPage, 3 * kPage}, {2, 3 * kPage, 4 * kPage}}));
  // 10 pages over 5 : 3 : 1 are 5.56, 3.33 and 1.11.
  EXPECT_EQ(CutRecord(10 * kPage, kPage, std::vector<double>{5, 3, 1}),
            (Pieces{{0, 0, 6 * kPage}, {1, 6 * kPage, 9 * kPage}, {2, 9 * kPage, 10 * kPage}}));
}

TEST(CutRecord, ADriveWhoseShareIsNothingOrThatHasNoRateGetsNoPiece) {
  using Pieces = std::vector<CutPiece>;
  EXPECT_EQ(CutRecord(kPage, kPage, std::vector<double>{1, 1000}), (Pieces{{1, 0, kPage}}));
  EXPECT_EQ(CutRecord(2 * kPage, kPage, std::vector<double>{0, 1, NAN, -3, 1}),
            (Pieces{{1, 0, kPage}, {4, kPage, 2 * kPage}}));
}

TEST(CutRecord, RatesMayBeOfAnySize) {
  const std::vector<double> huge = {1e308, 1e308, 1e308}, tiny = {1e-300, 1e-300, 1e-300}, one = {1, 1, 1};
  EXPECT_EQ(CutRecord(300 * kPage, kPage, huge), CutRecord(300 * kPage, kPage, one));
  EXPECT_EQ(CutRecord(300 * kPage, kPage, tiny), CutRecord(300 * kPage, kPage, one));
}

TEST(CutReplica, EveryByteLiesOnAnotherDriveToo) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> rates = RandomRates(random, 16);
    if (rates.size() == 1) rates.push_back(1e9);
    const uint64_t record = kPage * (1 + random() % 5000);
    const std::vector<CutPiece> pieces = CutRecord(record, kPage, rates);
    const std::vector<int> first = DriveOfPages(pieces, record);
    const std::vector<int> second = DriveOfPages(CutReplica(pieces, kPage, rates), record);
    for (size_t page = 0; page < first.size(); ++page) {
      ASSERT_NE(second[page], -1);
      ASSERT_NE(second[page], first[page]);
    }
  }
}

TEST(CutReplica, TheLoadOfAMissingDriveIsTakenByAllOthersInProportion) {
  const std::vector<double> rates = {13.6, 7.1, 7.1, 5.4};
  const std::vector<CutPiece> pieces = CutRecord(kK3Record, kPage, rates);
  const std::vector<int> first = DriveOfPages(pieces, kK3Record);
  const std::vector<int> second = DriveOfPages(CutReplica(pieces, kPage, rates), kK3Record);
  for (int missing = 0; missing < 4; ++missing) {
    std::vector<double> seconds(4, 0);
    for (size_t page = 0; page < first.size(); ++page)
      seconds[static_cast<size_t>(first[page] == missing ? second[page] : first[page])] += 1;
    double others = 0;
    for (size_t d = 0; d < 4; ++d) {
      seconds[d] /= rates[d];
      if (static_cast<int>(d) != missing) others += rates[d];
    }
    EXPECT_EQ(seconds[static_cast<size_t>(missing)], 0);
    const double best = static_cast<double>(first.size()) / others;
    EXPECT_LT(*std::max_element(seconds.begin(), seconds.end()), best * 1.005);
  }
}

TEST(CutReplica, AReadHasNoMorePartsThanTheSchedulerTakes) {
  for (size_t drives = 2; drives <= 64; ++drives) {
    const std::vector<double> rates(drives, 1.0);
    const std::vector<CutPiece> pieces = CutRecord(kK3Record, kPage, rates);
    size_t parts = 0;
    for (const CutPiece& a : pieces)
      for (const CutPiece& b : CutReplica(pieces, kPage, rates)) parts += a.begin < b.end && b.begin < a.end ? 1 : 0;
    EXPECT_LE(parts, kMaxCutPieces) << drives << " drives";
  }
}

TEST(CutReplica, OneDriveHasNoSecondCopy) {
  const std::vector<double> one = {3};
  EXPECT_TRUE(CutReplica(CutRecord(8 * kPage, kPage, one), kPage, one).empty());
  const std::vector<double> one_of_two = {0, 3};
  EXPECT_TRUE(CutReplica(CutRecord(8 * kPage, kPage, one_of_two), kPage, one_of_two).empty());
}

// The fewest pages that change drives, over every way to give each drive its number of pages.
uint64_t FewestMoves(const std::vector<int>& before, std::vector<uint64_t> left, size_t page = 0) {
  if (page == before.size()) return 0;
  uint64_t fewest = UINT64_MAX;
  for (size_t drive = 0; drive < left.size(); ++drive) {
    if (left[drive] == 0) continue;
    --left[drive];
    const uint64_t moved = before[page] == static_cast<int>(drive) ? 0 : 1;
    fewest = std::min(fewest, moved + FewestMoves(before, left, page + 1));
    ++left[drive];
  }
  return fewest;
}

TEST(RecutRecord, MovesAsFewBytesAsAnyCutOfThoseSizesCould) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const uint64_t record = kPage * (3 + random() % 6);
    std::vector<CutPiece> pieces = CutRecord(record, kPage, RandomRates(random, 4));
    for (int step = 0; step < 3; ++step) {
      const std::vector<double> rates = RandomRates(random, 4);
      const std::vector<int> before = DriveOfPages(pieces, record);
      const Recut recut = RecutRecord(pieces, kPage, rates);
      const std::vector<int> after = DriveOfPages(recut.pieces, record);
      const std::vector<uint64_t> sizes = PagesOfDrives(after, rates.size());
      ASSERT_EQ(sizes, PagesOfDrives(DriveOfPages(CutRecord(record, kPage, rates), record), rates.size()));
      uint64_t moved = 0;
      for (size_t page = 0; page < before.size(); ++page) moved += before[page] != after[page] ? 1 : 0;
      ASSERT_EQ(recut.moved_bytes, moved * kPage);
      ASSERT_EQ(moved, FewestMoves(before, sizes));
      pieces = recut.pieces;
    }
  }
}

TEST(RecutRecord, APieceIsTheRestOfAnOldOneOrWhollyNewToItsDrive) {
  std::mt19937_64 random(4);
  std::vector<double> rates = {3, 2, 1};
  std::vector<CutPiece> pieces = CutRecord(1000 * kPage, kPage, rates);
  for (int step = 0; step < 12; ++step) {
    rates = RandomRates(random, 6);
    const std::vector<int> before = DriveOfPages(pieces, 1000 * kPage);
    const Recut recut = RecutRecord(pieces, kPage, rates);
    ASSERT_TRUE(std::is_sorted(recut.pieces.begin(), recut.pieces.end(),
                               [](const CutPiece& a, const CutPiece& b) { return a.begin < b.begin; }));
    for (const CutPiece& piece : recut.pieces) {
      const bool rest = std::any_of(pieces.begin(), pieces.end(), [&](const CutPiece& old) {
        return old.drive == piece.drive && old.begin == piece.begin && old.end >= piece.end;
      });
      bool new_to_drive = true;
      for (uint64_t page = piece.begin / kPage; page < piece.end / kPage; ++page)
        new_to_drive = new_to_drive && before[page] != piece.drive;
      ASSERT_NE(rest, new_to_drive);
    }
    pieces = recut.pieces;
  }
}

TEST(RecutRecord, TheSameRatesMoveNothingAndADriveThatLeavesGivesUpAll) {
  const std::vector<double> rates = {3, 2, 2};
  const std::vector<CutPiece> pieces = CutRecord(700 * kPage, kPage, rates);
  const Recut same = RecutRecord(pieces, kPage, rates);
  EXPECT_EQ(same.pieces, pieces);
  EXPECT_EQ(same.moved_bytes, 0u);
  for (const std::vector<double>& fewer : {std::vector<double>{3, 2}, std::vector<double>{3, 2, 0}}) {
    const Recut left = RecutRecord(pieces, kPage, fewer);
    EXPECT_EQ(left.moved_bytes, 200 * kPage);
    for (const CutPiece& piece : left.pieces) EXPECT_NE(piece.drive, 2);
  }
}

TEST(RecutRecord, ManyRebalancesKeepTheNumberOfPiecesInBounds) {
  std::mt19937_64 random(5);
  std::vector<CutPiece> pieces = CutRecord(4284 * kPage, kPage, std::vector<double>{1});
  for (int step = 0; step < 300; ++step) {
    pieces = RecutRecord(pieces, kPage, RandomRates(random, 8)).pieces;
    ASSERT_LE(pieces.size(), kMaxCutPieces);
    const std::vector<int> pages = DriveOfPages(pieces, 4284 * kPage);
    ASSERT_EQ(std::count(pages.begin(), pages.end(), -1), 0);
  }
}

}  // namespace
}  // namespace deltafin
