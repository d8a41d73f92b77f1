// Sections of indices in gathered messages. Unless the message is announced, indices travel coded
// (sdk/wire/positions.hpp), each section in the coding that is the shortest for it. The plan alone
// decides which sections are coded (SectionNeed::is_coded), so every rank decides alike.
//
// Plugins write and read the indices uncoded. The uncoded indices lie behind the message in its
// memory, so that the sent indices stay unchanged until the outcome of the step is known.
#pragma once

#include "core/bucket/coding.hpp"

#include <kernels/code_path.hpp>

#include <span>

namespace penstock {

// Bytes that a section may take in a message that is not announced.
uint64_t room_of(const ItemRun& item, const SectionNeed& section);

// Bytes that all coded sections take in their uncoded form.
uint64_t uncoded_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

// Writes the indices of the item, and returns the end of the written bytes. A section without
// indices takes no bytes.
std::byte* write_coded(const ItemRun& item, std::span<const uint32_t> indices, std::byte* target,
                       kernels::CodePath path);

// Reads the section at the front of `bytes` into `indices`. The bytes come from another rank, so
// they are checked. `taken` becomes the number of bytes in the section. If `indices` is null, only
// the header of the section is read. Returns the reason of a refusal, as the end of a sentence, or
// an empty string.
std::string read_coded(const ItemRun& item, std::span<const std::byte> bytes, uint64_t count,
                       uint32_t* indices, uint64_t& taken, kernels::CodePath path);

}  // namespace penstock
