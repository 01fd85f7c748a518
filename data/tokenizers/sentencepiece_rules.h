#pragma once

#include <string>
#include <string_view>

namespace slackline {

// The rules by which a SentencePiece model rewrites text stand in it as a double-array trie
// (ModelProto.normalizer_spec.precompiled_charsmap, darts-clone's units of 32 bits) with the texts
// that it leads to. The library follows the trie's offsets as they are. Throws FileError where one
// leads out of the trie or of the texts, and for what is no sequence of protobuf's fields.
void require_sound_rules(std::string_view model, const std::string& source);

}  // namespace slackline
