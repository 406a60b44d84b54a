#include "cli/replaced_verb.h"

#include "base/launcher.h"
#include "base/log.h"

void weft_print_replaced(const char *old, const char *now)
{
    if (weft_launcher_rank() <= 0)
        weft_notice(WEFT_MSG_OPTION_RENAMED,
                    WEFT_AT(.value = old, WEFT_DETAILS(WEFT_WORD("now", now))),
                    "`%s` replaces `%s`", now, old);
}
