// Numbers that determine speed, and numbers that fix an order of summation. They follow from
// registers, shared memory and loads in flight; those of selections and signs also from the figures
// of an H100 (docs/performance.md). None was searched on a device.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

inline constexpr uint32_t kWarp = 32;

// ---- Element by element ----
// Eight independent loads per thread are in flight before the first is used.
inline constexpr uint32_t kElementThreads = 256;
inline constexpr uint32_t kElementItems = 8;
// A run of up to kShortRun elements has a warp, not a whole block, to itself. Numbers of warps and
// of blocks have 32 bits.
inline constexpr uint32_t kShortRun = 1024;
inline constexpr uint64_t kMostShortRuns = uint64_t{1} << 29;

// ---- Sums ----
// These numbers fix the order of summation: other numbers give other bits.
inline constexpr uint32_t kSumThreads = 256;
inline constexpr uint32_t kSumTile = 16 * 1024;
inline constexpr uint32_t kSumLoads = 8;  // in flight; does not change the order

// ---- Selection ----
inline constexpr uint32_t kCollectThreads = 256;
inline constexpr uint32_t kCollectItems = 16;
inline constexpr uint32_t kCollectTile = kCollectThreads * kCollectItems;
inline constexpr uint32_t kSampleThreads = 1024;
inline constexpr uint32_t kSampleItems = 8;
inline constexpr uint32_t kSamples = kSampleThreads * kSampleItems;
inline constexpr uint32_t kAlwaysAll = 64 * 1024;  // up to this n a sample would not pay
inline constexpr uint32_t kDigitThreads = 256;
inline constexpr uint32_t kDigitLoads = 8;       // in flight in each thread
inline constexpr uint32_t kDigitBlocks = 1024;   // a few for each multiprocessor of the largest GPU
inline constexpr uint32_t kFewDigitBlocks = 32;  // for few candidates, as all may compete
inline constexpr uint32_t kTurnsOfAll = 64;      // most turns of a block if all entries compete
inline constexpr uint32_t kTileWarps = 8;        // warps of a block that writes tiles: 1 or this
inline constexpr uint32_t kTileThreads = kTileWarps * kWarp;
inline constexpr uint32_t kFewTiles = 2048;    // up to this number a block has one tile
inline constexpr uint32_t kLoneEntries = 512;  // up to this number one warp handles a tile
inline constexpr uint32_t kTileRows = 8;       // rows of a warp's entries, read at a time
inline constexpr uint32_t kStretch = kTileRows * kWarp;

// ---- Sums of sparse payloads ----
inline constexpr uint32_t kSparseSumThreads = 256;
inline constexpr uint32_t kSparseSumTile = 4096;  // floats in shared memory

// ---- Rows ----
inline constexpr uint32_t kNarrowRow = 1024;  // keys of a row in shared memory, 64 threads
inline constexpr uint32_t kCachedRow = 8192;  // with 256 threads; wider rows are read again

// ---- Offsets of tiles ----
inline constexpr uint32_t kScanThreads = 1024;
inline constexpr uint32_t kScanItems = 8;

// ---- Signs ----
inline constexpr uint32_t kSignThreads = 256;
inline constexpr uint32_t kSignTile = 8192;       // elements; each warp packs 1024
inline constexpr uint32_t kSignSumThreads = 128;  // 32 elements to each
inline constexpr uint32_t kVoteWords = 256;       // 64-bit words of a tile, one to a thread

// ---- Low-rank products ----
// These numbers fix the order of summation, and so do the numbers of Gram matrices.
inline constexpr uint32_t kProductThreads = 256;
inline constexpr uint32_t kProductWidth = 32;     // columns of a factor that one sweep multiplies
inline constexpr uint32_t kProductColumns = 128;  // columns of the matrix, staged at a time
inline constexpr uint32_t kProductRows = 32;      // rows, when rows are summed
inline constexpr uint32_t kProductBlocks = 1024;  // a few for each multiprocessor of the largest
inline constexpr uint32_t kMostSegments = 64;     // segments of a sum, each summed by a block
inline constexpr uint32_t kSegmentFewest = 256;   // terms of a segment; whole stages

// ---- Orthogonalisation ----
inline constexpr uint32_t kGramThreads = 256;
inline constexpr uint32_t kGramBlocks = 512;
inline constexpr uint32_t kGramFewest = 256;  // rows of a tile
inline constexpr uint32_t kFactorThreads = 1024;
inline constexpr uint32_t kSolveThreads = 128;

// ---- Packing ----
inline constexpr uint32_t kPackThreads = 256;  // eight codes to a thread

}  // namespace penstock::kernels::cuda
