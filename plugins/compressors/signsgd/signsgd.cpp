// Sign-SGD with majority vote: each rank sends one bit per element, the update is the sign on which
// most ranks agree.
// Source: Bernstein, Zhao, Azizzadenesheli, Anandkumar, "signSGD with Majority Vote is
// Communication Efficient and Fault Tolerant", ICLR 2019. See README.md for where this differs and
// why.
#include <methods/sign.hpp>

namespace sdk = penstock::sdk;

PENSTOCK_COMPRESSOR(penstock::sdk::MajorityVote, "compressor/signsgd", "0.1.0",
                    "one bit per element and a majority vote over ranks",
                    "Bernstein et al., signSGD with Majority Vote is Communication Efficient and "
                    "Fault Tolerant, ICLR 2019");
