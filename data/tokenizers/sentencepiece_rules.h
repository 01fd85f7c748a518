#pragma once

#include <string>
#include <string_view>

namespace slackline {

// The rules by which a SentencePiece model rewrites text stand in it as a double-array trie
// (ModelProto.normalizer_spec.precompiled_charsmap, darts-clone's units of 32 bits) with the texts
// that it leads to. The library follows the trie's offsets as they are, and writes what it finds at
// one place of a text into arrays whose sizes it does not look at. Throws FileError where an offset
// leads out of the trie or of the texts, or back to a node of its path; where rules, or pieces of
// the user's, that begin each other are more than fit; where a rule makes more than 255 bytes; and
// for what is no sequence of protobuf's fields.
void require_sound_rules(std::string_view model, const std::string& source);

}  // namespace slackline
