#include "pack/piece_outputs.h"

#include <utility>

namespace deltafin {

PieceOutputs::Output* PieceOutputs::Find(const ExpertPieceFile& piece) {
  auto& files = drives_[static_cast<size_t>(piece.cut.drive)];
  const auto it = files.find(piece.file);
  return it == files.end() ? nullptr : &it->second;
}

Status PieceOutputs::Open(const std::vector<ExpertPieceFile>& pieces, uint64_t slots) {
  for (const ExpertPieceFile& piece : pieces) {
    if (Find(piece) != nullptr) continue;
    const auto drive = static_cast<size_t>(piece.cut.drive);
    Output output;
    output.limit = slots * piece.stride;
    DFIN_TRY(output.file, OutputFile::Open(folders_[drive] + "/" + piece.file, hook_));
    SyncFolder(folders_[drive]);  // the name is durable before anything in the file counts
    drives_[drive].emplace(piece.file, std::move(output));
  }
  return {};
}

void PieceOutputs::Write(DriveWriters& writers, DriveWriters::Group& group, const std::vector<ExpertPieceFile>& pieces,
                         uint32_t slot, const std::byte* record) {
  for (const ExpertPieceFile& piece : pieces) {
    Output* output = Find(piece);
    if (output == nullptr) continue;
    output->dirty = true;
    const Bytes bytes(record + piece.cut.begin, static_cast<size_t>(piece.cut.bytes()));
    writers.Give(static_cast<size_t>(piece.cut.drive), group,
                 [file = output->file.get(), limit = output->limit, offset = piece.Offset(slot), bytes] {
                   file->Reserve(offset + bytes.size(), limit);
                   return file->Write(offset, bytes);
                 });
  }
}

void PieceOutputs::Sync(DriveWriters& writers, DriveWriters::Group& group) {
  for (size_t drive = 0; drive < drives_.size(); ++drive) {
    std::vector<OutputFile*> dirty;
    for (auto& [name, output] : drives_[drive])
      if (std::exchange(output.dirty, false)) dirty.push_back(output.file.get());
    if (dirty.empty()) continue;
    writers.Give(drive, group, [dirty]() -> Status {
      for (OutputFile* file : dirty) DFIN_TRY_VOID(file->Sync());
      return {};
    });
  }
}

Status PieceOutputs::SetSizes(const std::vector<ExpertPieceFile>& pieces, uint32_t slots) {
  for (const ExpertPieceFile& piece : pieces) {
    Output* output = Find(piece);
    if (output == nullptr) continue;
    DFIN_TRY_VOID(output->file->SetSize(slots * piece.stride));
    DFIN_TRY_VOID(output->file->Sync());
  }
  return {};
}

std::vector<std::string> PieceOutputs::CachedFiles() const {
  std::vector<std::string> paths;
  for (const auto& files : drives_)
    for (const auto& [name, output] : files)
      if (!output.file->direct()) paths.push_back(output.file->path());
  return paths;
}

}  // namespace deltafin
