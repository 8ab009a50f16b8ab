"""Reads and writes safetensors files with nothing but PyTorch and the standard library.

Written files are canonical: names sorted bytewise, offsets from 0 without gaps, the header padded with spaces to 8
bytes.
"""

import json
import struct

import torch

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "U8": torch.uint8, "I64": torch.int64, "I32": torch.int32}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def read_safetensors(path):
    """All tensors of one file, by name, on the CPU."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        body = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = torch.frombuffer(bytearray(body[begin:end]), dtype=_DTYPES[entry["dtype"]])
        tensors[name] = data.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors, metadata=None):
    header, offset, chunks = {}, 0, []
    if metadata:
        header["__metadata__"] = metadata
    for name in sorted(tensors, key=lambda text: text.encode()):
        tensor = tensors[name].detach().cpu().contiguous()
        flat = tensor.reshape(-1)
        if tensor.dtype == torch.bfloat16:
            flat = flat.view(torch.int16)
        data = flat.numpy().tobytes()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        chunks.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for data in chunks:
            file.write(data)
