// streamed_run.h: a hub, and a model whose dense part came from it and whose experts are still there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "checkpoint/inspect.h"
#include "stream/made_stream.h"

namespace deltafin::test {

class StreamedModel : public testing::Test {
 protected:
  // One hub and one dense part for all tests; each has a copy.
  static void SetUpTestSuite() {
    shared_server_ = std::make_unique<HubServer>(NanoModel());
    shared_dense_ = std::make_unique<TempFolder>();
    MakeStream(*shared_server_, shared_dense_->path());
  }
  static void TearDownTestSuite() {
    shared_server_.reset();
    shared_dense_.reset();
  }
  StreamedModel() : server_(*shared_server_), expected_(ExpectedGreedy(0)) {
    server_.BeGood();
    std::filesystem::copy(shared_dense_->path(), to(), std::filesystem::copy_options::recursive);
  }
  const std::string& to() const { return folder_.path(); }
  uint64_t ExpertsThere() const { return InspectFolder(to())->stream->experts; }
  // Flips a bit in the middle of every expert that was fetched; how many.
  int DamageExperts() const {
    const auto folder = StreamFolder::Open(to(), StreamFolder::Use::kRead);
    int damaged = 0;
    for (int32_t file = 0; file < static_cast<int32_t>((*folder)->manifest().files.size()); ++file)
      for (const PresenceEntry& entry : (*folder)->Ranges(file)) {
        if (entry.kind != PresenceKind::kExpert) continue;
        std::fstream stored((*folder)->PathOf(file), std::ios::binary | std::ios::in | std::ios::out);
        const auto at = static_cast<std::streamoff>(entry.range.offset + entry.range.bytes / 2);
        stored.seekg(at);
        const char byte = static_cast<char>(stored.get() ^ 8);
        stored.seekp(at);
        stored.put(byte);
        ++damaged;
      }
    return damaged;
  }

  static inline std::unique_ptr<HubServer> shared_server_;
  static inline std::unique_ptr<TempFolder> shared_dense_;
  HubServer& server_;
  const TempFolder folder_;
  const GreedyCase expected_;
};

}  // namespace deltafin::test
