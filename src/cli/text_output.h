/* Prints a text that was collected in a buffer. */
#ifndef WEFT_CLI_TEXT_OUTPUT_H
#define WEFT_CLI_TEXT_OUTPUT_H

#include "base/memory.h"

/* Prints `text` to standard output and releases it, also after an error. */
weft_status weft_text_output(weft_buf *text);

#endif
