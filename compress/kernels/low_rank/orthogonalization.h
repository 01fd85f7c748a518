#pragma once

namespace slackline {

// Says how columns are made orthonormal (orthonormalize.h).
enum class Orthogonalization {
  blocked,       // Gram-Schmidt by panels of columns, every projection done twice
  gram_schmidt,  // modified Gram-Schmidt by columns, each projection done once: the textbook's,
                 // kept as the reference
};

}  // namespace slackline
