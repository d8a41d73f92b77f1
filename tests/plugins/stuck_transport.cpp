// A transport whose constructor never returns. At that time no rank has met another, and no thread
// watches calls.
#include <penstock/collective.hpp>

#include <unistd.h>

namespace penstock::sdk {

class StuckTransport {
 public:
  struct Channel {};
  struct Ticket {};
  static inline const OptionList options{};
  explicit StuckTransport(const Options&) {
    for (;;) pause();
  }
  void describe(penstock_collective_traits& traits) const {
    traits.flags = PENSTOCK_COLLECTIVE_TRANSPORT;
  }
  void volume(uint32_t, uint32_t, uint32_t, uint64_t, penstock_volume&, penstock_volume&) const {}
  std::unique_ptr<Channel> open(const OpenCall&) { return std::make_unique<Channel>(); }
  Ticket* submit(Channel&, const penstock_message&) { return &ticket_; }
  bool progress(Ticket&) { return true; }
  void release(Ticket*) {}
  void abort(Channel&) {}
  void close(std::unique_ptr<Channel>) {}
  void join(uint64_t, penstock_world&) {}
  void leave(bool) {}

 private:
  Ticket ticket_;
};

PENSTOCK_COLLECTIVE(StuckTransport, "collective/stuck", "1.0.0", "Its constructor never returns.",
                    "");

}  // namespace penstock::sdk
