#include "base/listing.h"

enum { SHOWN = 20 };

void weft_listing_add(weft_listing *l, const char *name)
{
    if (l->count < SHOWN)
        weft_buf_printf(&l->text, "%s%s", l->count ? ", " : "", name);
    else if (l->count == SHOWN)
        weft_buf_printf(&l->text, ", ...");
    l->count++;
}

const char *weft_listing_text(const weft_listing *l)
{
    return l->text.data ? l->text.data : "";
}

void weft_listing_free(weft_listing *l)
{
    weft_buf_free(&l->text);
    *l = (weft_listing){0};
}
