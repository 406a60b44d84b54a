#include "storage/http_retry.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

bool weft_http_is_transient(int status)
{
    return status == 0 || status == 408 || status == 429 || status == 500 || status == 502 ||
           status == 503 || status == 504;
}

/* Milliseconds of a Retry-After header; 0: none or not understood. */
static int64_t retry_after_ms(const char *text, int64_t now)
{
    char *end;
    struct tm date = {0};
    if (!text || !*text)
        return 0;
    const long seconds = strtol(text, &end, 10);
    int64_t wait = 0;
    if (end != text && !*end)
        wait = seconds;
    else if (strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &date))
        wait = (int64_t)timegm(&date) - now;
    const int64_t most = WEFT_HTTP_RETRY_AFTER_MS / 1000;
    return 1000 * (wait < 0 ? 0 : wait > most ? most : wait);
}

int64_t weft_http_retry_ms(int failures, double random, const char *retry_after, int64_t now)
{
    int64_t most = WEFT_HTTP_RETRY_FIRST_MS;
    for (int i = 1; i < failures && most < WEFT_HTTP_RETRY_MOST_MS; i++)
        most *= 2;
    if (most > WEFT_HTTP_RETRY_MOST_MS)
        most = WEFT_HTTP_RETRY_MOST_MS;
    const int64_t asked = retry_after_ms(retry_after, now);
    /* half fixed and half random: clients that failed together come back apart */
    const int64_t delay = most / 2 + (int64_t)((double)(most / 2) * random);
    return asked > 0 ? asked + delay : delay;
}
