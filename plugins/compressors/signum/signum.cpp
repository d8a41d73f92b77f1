// Signum: the sign of the momentum, and a majority vote. The momentum is the memory's; what is left
// for the compressor is what signsgd does.
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
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;  // the one with the momentum
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(Signum, "compressor/signum", "0.1.0",
                    "the sign of the momentum and a majority vote over ranks",
                    "Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, "
                    "ICML 2018");
