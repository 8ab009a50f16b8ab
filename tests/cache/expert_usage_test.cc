#include "cache/expert_usage.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "support/test_data.h"

namespace deltafin {
namespace {

TEST(ExpertUsage, CountsWhatWasWantedPerLayerAndExpert) {
  ExpertUsage usage(3, 8, 1);
  usage.Add(1, std::array{0, 3});
  usage.Add(1, std::array{3});
  usage.Add(2, std::array{3});
  EXPECT_EQ(usage.Count({1, 3}), 2u);
  EXPECT_EQ(usage.Count({1, 0}), 1u);
  EXPECT_EQ(usage.Count({2, 3}), 1u);
  EXPECT_EQ(usage.Count({0, 3}), 0u);
  EXPECT_EQ(usage.total(), 4u);
}

TEST(ExpertUsage, LastsFromRunToRun) {
  const test::TempFolder folder;
  {
    ExpertUsage usage(2, 4, 77);
    usage.Add(1, std::array{1, 2});
    ASSERT_TRUE(usage.Save(folder.path() + "/state"));
  }
  ExpertUsage next(2, 4, 77);
  next.Add(1, std::array{2});
  ASSERT_TRUE(next.Load(folder.path() + "/state"));
  EXPECT_EQ(next.Count({1, 2}), 2u);
  EXPECT_EQ(next.Count({1, 1}), 1u);
  EXPECT_EQ(next.total(), 3u);
}

TEST(ExpertUsage, OfAnotherCheckpointIsNotTaken) {
  const test::TempFolder folder;
  ExpertUsage usage(2, 4, 77);
  usage.Add(0, std::array{1});
  ASSERT_TRUE(usage.Save(folder.path()));
  ExpertUsage other(2, 4, 78);
  EXPECT_FALSE(other.Load(folder.path()));
  EXPECT_FALSE(ExpertUsage(2, 4, 78).AddBytes(usage.ToBytes()));
  EXPECT_FALSE(ExpertUsage(4, 2, 77).AddBytes(usage.ToBytes())) << "as many counts, another shape";
}

TEST(ExpertUsage, ADamagedFileCountsAsNone) {
  ExpertUsage usage(2, 4, 77);
  usage.Add(0, std::array{1});
  const std::string bytes = usage.ToBytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    ExpertUsage reader(2, 4, 77);
    EXPECT_FALSE(reader.AddBytes(damaged)) << "byte " << i;
    EXPECT_FALSE(reader.AddBytes(bytes.substr(0, i)));
    EXPECT_EQ(reader.total(), 0u);
  }
}

TEST(ExpertUsage, LargeCountsFadeAndKeepTheirOrder) {
  ExpertUsage usage(1, 2, 1);
  usage.Add(0, std::array{0});
  for (int i = 0; i < 40; ++i) {
    usage.Add(0, std::array{0, 1});
    usage.Add(0, std::array{0});
    const std::string bytes = usage.ToBytes();
    ASSERT_TRUE(usage.AddBytes(bytes)) << "doubles every count";
    ASSERT_LT(usage.Count({0, 0}), 1u << 30);
    ASSERT_GT(usage.Count({0, 0}), usage.Count({0, 1}));
    ASSERT_EQ(usage.total(), uint64_t{usage.Count({0, 0})} + usage.Count({0, 1}));
  }
}

TEST(ExpertUsage, NamesTheMostUsedFirst) {
  ExpertUsage usage(3, 3, 1);
  usage.Add(0, std::array{0});  // not asked for below
  usage.Add(1, std::array{0, 2});
  usage.Add(2, std::array{1});
  usage.Add(2, std::array{1, 2});
  const std::array layers = {1, 2};
  const std::vector<ExpertKey> used = {{2, 1}, {1, 0}, {1, 2}, {2, 2}};
  EXPECT_EQ(usage.MostUsed(layers, 5), used) << "not all six fit: those that were never used are left out";
  EXPECT_EQ(usage.MostUsed(layers, 3), std::vector(used.begin(), used.begin() + 3));
  std::vector<ExpertKey> all = used;
  all.insert(all.end(), {{1, 1}, {2, 0}});
  EXPECT_EQ(usage.MostUsed(layers, 6), all);
  EXPECT_TRUE(ExpertUsage(3, 3, 1).MostUsed(layers, 5).empty());
}

TEST(ExpertUsage, TheFolderDoesNotFillUp) {
  const test::TempFolder folder;
  for (uint64_t id = 0; id < 20; ++id) ASSERT_TRUE(ExpertUsage(1, 1, id).Save(folder.path()));
  const auto files = std::distance(std::filesystem::directory_iterator(folder.path()), {});
  EXPECT_EQ(files, ExpertUsage::kFilesKept);
}

TEST(ExpertUsage, WhatAKilledRunLeftIsRemovedByTheNext) {
  const test::TempFolder folder;
  const std::string start = folder.path() + "/expert-usage-0000000000000001.bin.part-";
  const std::string of_nobody = start + "999999999", of_this = start + std::to_string(getpid());
  for (const std::string& path : {of_nobody, of_this}) std::ofstream(path) << "half";
  ASSERT_TRUE(ExpertUsage(1, 1, 2).Save(folder.path()));
  EXPECT_FALSE(std::filesystem::exists(of_nobody));
  EXPECT_TRUE(std::filesystem::exists(of_this));
}

}  // namespace
}  // namespace deltafin
