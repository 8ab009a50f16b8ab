#include "setup/hub_listing.h"

#include <gtest/gtest.h>

#include "base/digest.h"

namespace deltafin::test {
namespace {

const std::string kSha1(40, 'a'), kSha256(64, 'b');

std::string Entry(const std::string& path, const std::string& size = "5") {
  return Cat(R"({"type":"file","oid":")", kSha1, R"(","size":)", size, R"(,"path":")", path, R"("})");
}

Status ParseOne(const std::string& entry) {
  std::vector<HubFile> files;
  return ParseTreePage(Cat("[", entry, "]"), files);
}

TEST(HubListing, ReadsFilesWithTheirChecksums) {
  std::vector<HubFile> files;
  const std::string large = Cat(R"({"type":"file","oid":"0","size":900,"lfs":{"oid":")", kSha256,
                                R"(","size":900,"pointerSize":135},"path":"a/b.safetensors"})");
  ASSERT_TRUE(ParseTreePage(
      Cat("[", Entry("config.json"), R"(,{"type":"directory","oid":"x","path":"a"},)", large, "]"), files));
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0], (HubFile{"config.json", 5, "", kSha1}));
  EXPECT_EQ(files[1], (HubFile{"a/b.safetensors", 900, kSha256, ""}));
}

TEST(HubListing, RefusesNamesThatLeadElsewhere) {
  for (const char* path :
       {"../x",   "a/../../x", "/etc/passwd", "a//b",       ".",      "..",        "a/.",  "",     "a/", "C:x",
        "a\\\\b", "a\\u0000b", "a\\nb",       "caf\\u00e9", "x.part", "x.part-12", "a./b", "nul*", " a", "a "})
    EXPECT_FALSE(ParseOne(Entry(path))) << path;
  for (const char* path : {"config.json", "a/b/c.txt", "model-00001-of-000096.safetensors", "a b.txt", "..a", "a..b"})
    EXPECT_TRUE(ParseOne(Entry(path))) << path;
  EXPECT_FALSE(CheckHubPath(std::string(241, 'a')));
}

TEST(HubListing, RefusesSizesThatAreNone) {
  for (const char* size : {"-1", "1.5", "\"5\"", "null", "1e30", "18446744073709551615", "[]"})
    EXPECT_FALSE(ParseOne(Entry("a", size))) << size;
}

TEST(HubListing, RefusesTwoSizesForOneFile) {
  EXPECT_FALSE(ParseOne(Cat(R"({"type":"file","size":901,"lfs":{"oid":")", kSha256, R"(","size":900},"path":"a"})")));
}

TEST(HubListing, RefusesWhatIsNoList) {
  std::vector<HubFile> files;
  for (const char* text : {"", "{", "{}", "[1]", "[{}]", "[null]", R"([{"type":"link","path":"a"}])", "\xff\xfe"})
    EXPECT_FALSE(ParseTreePage(text, files)) << text;
  EXPECT_FALSE(ParseTreePage(std::string(100'000, '['), files));
  EXPECT_FALSE(ParseOne(R"({"type":"file","oid":"short","size":1,"path":"a"})"));
}

TEST(HubListing, RefusesMoreFilesThanAnyModelHas) {
  std::string page = "[";
  for (size_t i = 0; i < kMostHubFiles; ++i) page += Cat(Entry(Cat("f", i)), ",");
  page += Entry("last") + "]";
  std::vector<HubFile> files;
  const Status status = ParseTreePage(page, files);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message().find("at most"), std::string::npos);
}

TEST(HubListing, RefusesNamesThatAreOneOnSomeFileSystems) {
  EXPECT_FALSE(MakeListing("c", {{"A.json", 1, "", kSha1}, {"a.json", 1, "", kSha1}}));
  EXPECT_FALSE(MakeListing("c", {{"a", 1, "", kSha1}, {"a/b", 1, "", kSha1}}));
  EXPECT_FALSE(MakeListing("c", {{"a", kMostHubFileBytes, "", kSha1}, {"b", 1, "", kSha1}}));
  EXPECT_TRUE(MakeListing("c", {{"a/c", 1, "", kSha1}, {"a/b", 1, "", kSha1}}));
}

TEST(HubListing, FindsTheNextPage) {
  EXPECT_EQ(NextLink(R"(<https://h/a?cursor=x%3D>; rel="next")"), "https://h/a?cursor=x%3D");
  EXPECT_EQ(NextLink(R"(<https://h/1>; rel="prev", <https://h/3>; rel="next")"), "https://h/3");
  EXPECT_EQ(NextLink(R"(<https://h/1>; rel="prev")"), "");
  EXPECT_EQ(NextLink(""), "");
  EXPECT_EQ(NextLink("><"), "");
}

TEST(HubListing, ReadsTheCommitOfARevision) {
  EXPECT_EQ(*ParseRevision(Cat(R"({"id":"x","sha":")", kSha1, R"("})")), kSha1);
  for (const char* text : {"{}", "[]", R"({"sha":"main"})", R"({"sha":1})", "no"}) EXPECT_FALSE(ParseRevision(text));
}

// FIPS 180-4 example; git's well-known name of "hello\n".
TEST(Digest, HasThePublishedValues) {
  Digest sha = *Digest::Sha256();
  ASSERT_TRUE(sha.Add(std::as_bytes(std::span(std::string_view("abc")))));
  EXPECT_EQ(*sha.Finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest git = *Digest::GitSha1(6);
  ASSERT_TRUE(git.Add(std::as_bytes(std::span(std::string_view("hello\n")))));
  EXPECT_EQ(*git.Finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

}  // namespace
}  // namespace deltafin::test
