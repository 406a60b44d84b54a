#ifndef WEFT_TEXT_SPIECE_H
#define WEFT_TEXT_SPIECE_H

#include "base/status.h"
#include "text/tokenizer.h"

weft_status weft_tokenizer_read_spiece(weft_tokenizer *t);

#endif
