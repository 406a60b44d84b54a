#include "text/normalise.h"

#include "base/utf8.h"

#include <string.h>
#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>
#include <unicode/utext.h>

/* ---- the map of characters ------------------------------------------------------------------ */

static uint32_t word_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

weft_status weft_charsmap_read(const void *bytes, int64_t size, const char *where,
                               weft_charsmap *map)
{
    const unsigned char *p = bytes;
    *map = (weft_charsmap){0};
    if (size == 0)
        return WEFT_OK;
    const int64_t trie = size >= 4 ? (int64_t)word_at(p) : -1;
    if (trie < 4 || trie % 4 || trie > size - 5 || p[size - 1])
        return weft_error(WEFT_MSG_TOKENIZER_INVALID,
                          WEFT_AT(.file = where, .key = "precompiled_charsmap"),
                          "the character map is truncated or damaged; download the file again");
    map->units = trie / 4;
    map->size = size - 4 - trie;
    map->unit = weft_alloc(trie);
    map->text = weft_alloc(map->size);
    if (!map->unit || !map->text) {
        weft_charsmap_free(map);
        return weft_no_memory("%s", where);
    }
    for (int64_t i = 0; i < map->units; i++)
        map->unit[i] = word_at(p + 4 + 4 * i);
    memcpy(map->text, p + 4 + trie, (size_t)map->size);
    return WEFT_OK;
}

void weft_charsmap_free(weft_charsmap *map)
{
    weft_free(map->unit);
    weft_free(map->text);
    *map = (weft_charsmap){0};
}

/* A unit: bits 0-7 its label (with bit 31), 8: it has a value, 9: the offset is in 256s, 10-30:
 * offset to its children. */
static int64_t children_of(int64_t at, uint32_t unit)
{
    return at ^ (int64_t)((unit >> 10) << ((unit & 1u << 9) >> 6));
}

const char *weft_charsmap_find(const weft_charsmap *map, const char *text, int64_t length,
                               bool shortest, int64_t *taken)
{
    const char *found = NULL;
    if (!map->units)
        return NULL;
    int64_t at = children_of(0, map->unit[0]);
    for (int64_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        at ^= c;
        if (!c || at >= map->units || (map->unit[at] & (1u << 31 | 0xff)) != c)
            break;
        const uint32_t unit = map->unit[at];
        at = children_of(at, unit);
        if (at >= map->units)
            break;
        const uint32_t value = map->unit[at] & 0x7fffffff;
        if (unit >> 8 & 1 && value < map->size) {
            found = map->text + value;
            *taken = i + 1;
            if (shortest)
                break;
        }
    }
    return found;
}

/* ---- Unicode -------------------------------------------------------------------------------- */

int32_t weft_text_next(const char *text, int64_t length, int64_t *bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    const int n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    *bytes = 1;
    if (n == 1 || n > length)
        return n == 1 ? p[0] : -1;
    int32_t c = p[0] & (0x7f >> n);
    for (int i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    *bytes = n;
    return c;
}

bool weft_is_letter(int32_t c)
{
    return c >= 0 && (U_GET_GC_MASK(c) & U_GC_L_MASK);
}

static const uint32_t caseless = U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK;

bool weft_is_upper(int32_t c)
{
    return c >= 0 && (U_GET_GC_MASK(c) & (caseless | U_GC_LU_MASK | U_GC_LT_MASK));
}

bool weft_is_lower(int32_t c)
{
    return c >= 0 && (U_GET_GC_MASK(c) & (caseless | U_GC_LL_MASK));
}

bool weft_is_number(int32_t c)
{
    return c >= 0 && (U_GET_GC_MASK(c) & U_GC_N_MASK);
}

bool weft_is_space(int32_t c)
{
    return c >= 0 && u_isUWhiteSpace(c);
}

bool weft_is_sign(int32_t c)
{
    return c >= 0x80 ? (U_GET_GC_MASK(c) & U_GC_P_MASK) != 0
                     : c > ' ' && c < 0x7f && !weft_is_letter(c) && !weft_is_number(c);
}

void weft_text_repair(const char *text, int64_t length, weft_buf *out)
{
    weft_buf_append(out, "", 0);
    for (int64_t at = 0; at < length;) {
        const int letter = weft_utf8_length(text + at), n = text[at] ? letter : 1;
        const bool fits = n && n <= length - at;
        weft_buf_append(out, fits ? text + at : "\xef\xbf\xbd", fits ? n : 3);
        at += fits ? n : 1;
    }
}

static weft_status normal_form(weft_buf *text, bool decompose)
{
    UErrorCode error = U_ZERO_ERROR;
    const UNormalizer2 *form =
        decompose ? unorm2_getNFDInstance(&error) : unorm2_getNFCInstance(&error);
    const int32_t most = (int32_t)(4 * text->len + 16);
    UChar *wide = weft_calloc(most, sizeof *wide), *composed = weft_calloc(most, sizeof *composed);
    char *bytes = weft_alloc(3 * (int64_t)most + 1);
    int32_t length = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(wide && composed && bytes, "a text"));
    u_strFromUTF8(wide, most, &length, text->data ? text->data : "", (int32_t)text->len, &error);
    length = unorm2_normalize(form, wide, length, composed, most, &error);
    u_strToUTF8(bytes, 3 * most + 1, &length, composed, length, &error);
    if (U_FAILURE(error))
        WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "ICU reports %s",
                           u_errorName(error)));
    text->len = 0;
    weft_buf_append(text, bytes, length);
out:
    weft_free(wide);
    weft_free(composed);
    weft_free(bytes);
    return status;
}

weft_status weft_text_compose(weft_buf *text)
{
    return normal_form(text, false);
}

static bool is_chinese(int32_t c)
{
    static const int32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                        {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                        {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

weft_status weft_text_words(const char *text, int64_t length, bool lower, bool strip, bool chinese,
                            weft_buf *out)
{
    weft_buf clean = {0};
    weft_buf_append(&clean, "", 0);
    for (int64_t at = 0, n; at < length; at += n) {
        const int32_t c = weft_text_next(text + at, length - at, &n);
        const bool blank = c == '\t' || c == '\n' || c == '\r' || weft_is_space(c);
        if (!blank && (c <= 0 || c == 0xfffd || (U_GET_GC_MASK(c) & U_GC_C_MASK)))
            continue;
        const bool apart = chinese && is_chinese(c);
        weft_buf_append(&clean, " ", apart || blank);
        if (!blank)
            weft_utf8_append(&clean, (uint32_t)c);
        weft_buf_append(&clean, " ", apart);
    }
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&clean));
    if (strip)
        WEFT_GO(normal_form(&clean, true));
    weft_buf_append(out, "", 0);
    for (int64_t at = 0, n; at < clean.len; at += n) {
        const int32_t c = weft_text_next(clean.data + at, clean.len - at, &n);
        if (strip && (U_GET_GC_MASK(c) & U_GC_MN_MASK))
            continue;
        weft_utf8_append(out, (uint32_t)(lower ? u_tolower(c) : c));
        if (lower && c == 0x130) /* I with a dot: its small letter is two */
            weft_utf8_append(out, 0x307);
    }
    WEFT_GO(weft_buf_check(out));
out:
    weft_buf_free(&clean);
    return status;
}

void weft_text_lower(const char *text, int64_t length, weft_buf *out)
{
    bool space = false;
    weft_buf_append(out, "", 0);
    for (int64_t at = 0, n; at < length; at += n) {
        const int32_t c = weft_text_next(text + at, length - at, &n);
        if (!weft_is_space(c)) {
            weft_utf8_append(out, (uint32_t)u_tolower(c));
            if (c == 0x130) /* I with a dot: its small letter is two */
                weft_utf8_append(out, 0x307);
        } else if (!space) {
            weft_buf_append(out, " ", 1);
        }
        space = weft_is_space(c);
    }
}

weft_status weft_charsmap_apply(const weft_charsmap *map, const char *text, int64_t length,
                                weft_buf *out)
{
    UErrorCode error = U_ZERO_ERROR;
    UText view = UTEXT_INITIALIZER;
    utext_openUTF8(&view, text, length, &error);
    UBreakIterator *breaks = ubrk_open(UBRK_CHARACTER, "en", NULL, 0, &error);
    ubrk_setUText(breaks, &view, &error);
    weft_buf_append(out, "", 0);
    for (int32_t from = 0, to; U_SUCCESS(error) && from < length; from = to) {
        int64_t taken, bytes;
        to = ubrk_next(breaks);
        if (to == UBRK_DONE)
            break;
        const char *whole =
            to - from < 6 ? weft_charsmap_find(map, text + from, to - from, true, &taken) : NULL;
        if (whole) {
            weft_buf_append(out, whole, (int64_t)strlen(whole));
            continue;
        }
        for (int64_t at = from; at < to; at += bytes) {
            weft_text_next(text + at, to - at, &bytes);
            const char *one = weft_charsmap_find(map, text + at, bytes, true, &taken);
            weft_buf_append(out, one ? one : text + at, one ? (int64_t)strlen(one) : bytes);
        }
    }
    ubrk_close(breaks);
    utext_close(&view);
    return U_FAILURE(error) ? weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "ICU reports %s",
                                         u_errorName(error))
                            : WEFT_OK;
}
