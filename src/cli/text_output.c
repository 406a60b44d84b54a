#include "cli/text_output.h"

#include <stdio.h>

weft_status weft_text_output(weft_buf *text)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(text));
    fwrite(text->data, 1, (size_t)text->len, stdout);
out:
    weft_buf_free(text);
    return status;
}
