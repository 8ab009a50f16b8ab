// RecordsInFlight: records that are written from the buffers that they were read into.
//
// A buffer goes back to its stream, which reads into it again, when all its writes have ended. Declared after the
// stream; the destructor waits for the writers. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>

#include "pack/drive_writers.h"
#include "pack/record_stream.h"

namespace deltafin {

class RecordsInFlight {
 public:
  // At most `most` (at least one) between two calls.
  RecordsInFlight(DriveWriters& writers, RecordStream& stream, size_t most)
      : writers_(writers), stream_(stream), most_(std::max<size_t>(1, most)) {}
  ~RecordsInFlight() {
    for (const auto& [item, group] : open_) writers_.Wait(group);
  }
  RecordsInFlight(const RecordsInFlight&) = delete;
  RecordsInFlight& operator=(const RecordsInFlight&) = delete;

  // The group for the writes of `item`.
  DriveWriters::Group& Add(const RecordStream::Item& item) {
    return open_.emplace_back(item, DriveWriters::Group()).second;
  }
  // Hands the oldest buffer back when there are too many.
  void MakeRoom() {
    if (open_.size() < most_) return;
    writers_.Wait(open_.front().second);
    stream_.Recycle(open_.front().first);
    open_.pop_front();
  }

 private:
  DriveWriters& writers_;
  RecordStream& stream_;
  const size_t most_;
  std::deque<std::pair<RecordStream::Item, DriveWriters::Group>> open_;
};

}  // namespace deltafin
