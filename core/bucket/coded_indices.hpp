// Sections of indices in gathered messages. Unless the message is announced they travel coded
// (sdk/wire/positions.hpp), each in the coding that is the shortest for it. Which sections do, the
// plan alone says (SectionNeed::is_coded), so every rank says the same.
//
// Plugins write and read them uncoded. They lie behind the message in its memory, so that what was
// sent stays as it was until the outcome of the step is known.
#pragma once

#include "core/bucket/coding.hpp"

#include <span>

namespace penstock {

// Room for a section in a message that is not announced.
uint64_t room_of(const ItemRun& item, const SectionNeed& section);

// Room for all coded sections as plugins see them.
uint64_t uncoded_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

// Writes indices of the item, and returns where they end. A section without any has no bytes.
std::byte* write_coded(const ItemRun& item, std::span<const uint32_t> indices, std::byte* target);

// Reads the section at the front of `bytes`, which are input, into `indices`, and sets how many of
// the bytes it has. Without a place for indices it looks at the header alone. Returns why it is
// refused, as the end of a sentence; nothing where it is not.
std::string read_coded(const ItemRun& item, std::span<const std::byte> bytes, uint64_t count,
                       uint32_t* indices, uint64_t& taken);

}  // namespace penstock
