#ifndef WEFT_PARITY_PARITY_TOKENIZER_H
#define WEFT_PARITY_PARITY_TOKENIZER_H

#include "parity/parity.h"

extern const weft_parity_kind weft_parity_tokenizer, weft_parity_cleaning;

#endif
