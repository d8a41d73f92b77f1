// A compressor whose encode throws. The C++ layer makes a status of the exception. With RAW the
// exception leaves the plugin, which no plugin may do.
#include <penstock/compressor.hpp>

#include <stdexcept>

namespace penstock::sdk {

class Thrower {
 public:
  static inline const OptionList options{};
  explicit Thrower(const Options&) {}
  void plan(const PlanCall&, const Item& item, CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel());
    need.part_alignment = 1;
  }
  void encode(const Call&, const Item&, PayloadWriter&) {
    throw std::out_of_range("no such entry");
  }
  void decode_add(const Call&, const Item&, const PayloadReader&) {}
};

#ifdef RAW
penstock_status* throw_through(void*, const penstock_exec*, const penstock_step*, uint32_t,
                               const penstock_item* const*, uint64_t, penstock_payload* const*) {
  throw std::out_of_range("no such entry");
}

template <typename T>
struct RawTable {
  static constexpr penstock_compressor make() {
    penstock_compressor table = CompressorTable<T>::table;
    table.encode = throw_through;
    return table;
  }
  static constexpr penstock_compressor table = make();
};

PENSTOCK_DEFINE_PLUGIN(PENSTOCK_KIND_COMPRESSOR, RawTable, Thrower, "compressor/thrower", "1.0.0",
                       "Throws past the C++ layer.", "");
#else
PENSTOCK_COMPRESSOR(Thrower, "compressor/thrower", "1.0.0", "Throws.", "");
#endif

}  // namespace penstock::sdk
