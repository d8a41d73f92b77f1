// Signum: the sign of the momentum, and a majority vote. The memory computes the momentum; the
// compressor does the work of signsgd.
// Source: Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation for
// Non-Convex Problems", ICML 2018, algorithm 2; the vote as in signsgd.
#include <methods/sign.hpp>

namespace sdk = penstock::sdk;

namespace {

class Signum : public penstock::sdk::MajorityVote {
 public:
  using MajorityVote::MajorityVote;
  void describe(penstock_compressor_traits& traits) const {
    MajorityVote::describe(traits);
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;  // the memory `momentum`
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(Signum, "compressor/signum", "0.1.0",
                    "the sign of the momentum and a majority vote over ranks",
                    "Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, "
                    "ICML 2018");
