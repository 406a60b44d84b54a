#include "text/clean.h"

#include "base/utf8.h"
#include "text/normalise.h"

#include <stdlib.h>
#include <string.h>
#include <unicode/ucnv.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>

/* What Python takes for white space: Unicode's, and the four separators of ASCII. */
static bool is_blank(int32_t c)
{
    return weft_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

void weft_text_clean_ends(const char *text, int64_t length, weft_buf *out)
{
    weft_buf whole = {0};
    int64_t from = -1, to = 0;
    weft_text_repair(text, length, &whole);
    for (int64_t at = 0, n; at < whole.len; at += n) {
        if (is_blank(weft_text_next(whole.data + at, whole.len - at, &n)))
            continue;
        from = from < 0 ? at : from;
        to = at + n;
    }
    if (from >= 0)
        weft_buf_append(out, whole.data + from, to - from);
    out->failed |= whole.failed;
    weft_buf_free(&whole);
}

void weft_text_clean_lower(const char *text, int64_t length, weft_buf *out)
{
    weft_buf whole = {0};
    weft_text_clean_ends(text, length, &whole);
    weft_text_lower(whole.data, whole.len, out);
    out->failed |= whole.failed;
    weft_buf_free(&whole);
}

/* A step of the repair: what `text` becomes. */
typedef void clean_step(const char *text, int64_t length, weft_buf *out);

/* ---- entities ------------------------------------------------------------------------------- */

typedef struct entity {
    const char *name, *text;
} entity;

/* clang-format off */
static const entity entities[] = {
#include "text/entities.def"
};
/* clang-format on */
enum { ENTITIES = sizeof entities / sizeof *entities, LONGEST_NAME = 32 };

static int by_name(const void *key, const void *row)
{
    return strcmp(key, ((const entity *)row)->name);
}

static const char *find_entity(const char *name, int64_t length)
{
    char key[LONGEST_NAME + 1];
    if (length > LONGEST_NAME)
        return NULL;
    memcpy(key, name, (size_t)length);
    key[length] = 0;
    const entity *found = bsearch(key, entities, ENTITIES, sizeof *entities, by_name);
    return found ? found->text : NULL;
}

/* Character of Windows-1252 for a number that names a C1 control; 0: the number is unchanged. */
static const uint16_t windows_1252[32] = {
    0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void append_number(uint32_t c, weft_buf *out)
{
    if (c >= 0x80 && c < 0xa0 && windows_1252[c - 0x80])
        c = windows_1252[c - 0x80];
    if (c == 0 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        weft_utf8_append(out, 0xfffd);
    else if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || (c >= 0x7f && c < 0xa0) ||
             (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe)
        return; /* names no character */
    else
        weft_utf8_append(out, c);
}

/* Reads "#12;" or "#x1f;" after an '&'. Returns its bytes; 0 if the text has another form. */
static int64_t take_number(const char *at, int64_t left, weft_buf *out)
{
    uint32_t code;
    const int64_t n = weft_character_reference(at, left, &code);
    if (n == 0)
        return 0;
    append_number(code, out);
    return n + (n < left && at[n] == ';');
}

/* Reads the longest known name after an '&'. */
static int64_t take_name(const char *at, int64_t left, weft_buf *out)
{
    int64_t n = 0;
    while (n < left && n < LONGEST_NAME && !strchr("\t\n\f <&#;", at[n]))
        n++;
    n += n < left && n < LONGEST_NAME && at[n] == ';';
    for (; n > 1; n--) {
        const char *text = find_entity(at, n);
        if (!text)
            continue;
        weft_buf_append(out, text, (int64_t)strlen(text));
        return n;
    }
    return 0;
}

static void unescape(const char *text, int64_t length, weft_buf *out)
{
    weft_buf_append(out, "", 0);
    for (int64_t at = 0; at < length; at++) {
        const char *next = text + at + 1;
        const int64_t left = length - at - 1;
        int64_t taken = 0;
        if (text[at] == '&' && left > 0)
            taken = *next == '#' ? take_number(next, left, out) : take_name(next, left, out);
        if (!taken)
            weft_buf_append(out, text + at, 1);
        at += taken;
    }
}

/* Replaces complete entities, "&name;", only: a repair must not guess. */
static void unescape_whole(const char *text, int64_t length, weft_buf *out)
{
    weft_buf_append(out, "", 0);
    for (int64_t at = 0, n; at < length; at += n) {
        n = 1;
        while (text[at] == '&' && at + n < length && n < 28 && text[at + n] != ';' &&
               (text[at + n] == '#' ? n == 1
                                    : ((text[at + n] | 32) >= 'a' && (text[at + n] | 32) <= 'z') ||
                                          is_digit(text[at + n])))
            n++;
        const bool whole = text[at] == '&' && n > 1 && at + n < length && text[at + n] == ';';
        n = whole ? n + 1 : 1;
        if (whole)
            unescape(text + at, n, out);
        else
            weft_buf_append(out, text + at, 1);
    }
}

/* ---- encodings ------------------------------------------------------------------------------ */

/* Encodings with which UTF-8 is often misread, the frequent ones first. */
static const char *const encodings[] = {
    "iso-8859-1",   "windows-1252", "windows-1251", "windows-1250", "windows-1253",
    "windows-1254", "windows-1257", "iso-8859-2",   "macintosh",    "ibm-437"};

/* The byte that encodes c; -1: none. A byte without a character in the encoding maps to the control
 * character of the same number, as in lenient decoders. */
static int byte_of(UConverter *converter, int32_t c)
{
    UErrorCode error = U_ZERO_ERROR;
    UChar wide[2];
    int32_t n = 0;
    char byte[8];
    if (c < 0x80)
        return c;
    U16_APPEND_UNSAFE(wide, n, c);
    ucnv_reset(converter);
    const int32_t bytes = ucnv_fromUChars(converter, byte, sizeof byte, wide, n, &error);
    if (U_SUCCESS(error) && bytes == 1)
        return (unsigned char)byte[0];
    return c >= 0x80 && c < 0xa0 ? c : -1;
}

static UConverter *open_strictly(const char *name)
{
    UErrorCode error = U_ZERO_ERROR;
    UConverter *converter = ucnv_open(name, &error);
    if (U_SUCCESS(error))
        ucnv_setFromUCallBack(converter, UCNV_FROM_U_CALLBACK_STOP, NULL, NULL, NULL, &error);
    return U_SUCCESS(error) ? converter : NULL;
}

/* A lead of UTF-8 and a blank that was one without a break: "voil\xc3 ". */
static void restore_blanks(weft_buf *bytes)
{
    for (int64_t i = 0; i + 1 < bytes->len; i++)
        if ((unsigned char)bytes->data[i] == 0xc3 && bytes->data[i + 1] == ' ')
            bytes->data[i + 1] = (char)0xa0;
}

/* The whole text as bytes of `encoding`, if these are UTF-8 and not ASCII alone. */
static bool decode_as(const char *encoding, const char *text, int64_t length, weft_buf *out)
{
    UConverter *converter = open_strictly(encoding);
    weft_buf bytes = {0};
    bool fits = converter != NULL, plain = true;
    for (int64_t at = 0, n; at < length && fits; at += n) {
        const int byte = byte_of(converter, weft_text_next(text + at, length - at, &n));
        fits = byte >= 0;
        plain &= byte < 0x80;
        weft_buf_append(&bytes, &(char){(char)byte}, 1);
    }
    ucnv_close(converter);
    if (fits && !plain)
        restore_blanks(&bytes);
    for (int64_t at = 0; fits && at < bytes.len;) {
        const int n = weft_utf8_length(bytes.data + at);
        fits = bytes.data[at] == 0 || (n && n <= bytes.len - at);
        at += n ? n : 1;
    }
    fits &= !plain && !bytes.failed;
    if (fits)
        weft_buf_append(out, bytes.data, bytes.len);
    weft_buf_free(&bytes);
    return fits;
}

/* Single letters of UTF-8 that were read as Windows-1252, in a text that is otherwise right. */
static void decode_apart(const char *text, int64_t length, weft_buf *out)
{
    UConverter *converter = open_strictly("windows-1252");
    for (int64_t at = 0, n; at < length; at += n) {
        char bytes[5] = {0};
        int64_t end = at, step;
        int count = 0, wanted = 0;
        weft_text_next(text + at, length - at, &n);
        for (; converter && end < length && count < 4; end += step, count++) {
            const int byte = byte_of(converter, weft_text_next(text + end, length - end, &step));
            if (count == 0)
                wanted = byte >= 0xc2 && byte < 0xe0 ? 2 : byte >= 0xe0 && byte < 0xf0 ? 3 : 4;
            if (byte < 0 || (count == 0 ? byte < 0xc2 || byte > 0xf4 : byte < 0x80 || byte > 0xbf))
                break;
            bytes[count] = (char)byte;
            if (count + 1 == wanted) {
                end += step;
                count++;
                break;
            }
        }
        const bool found = count && count == wanted && weft_utf8_length(bytes) == wanted;
        weft_buf_append(out, found ? bytes : text + at, found ? wanted : n);
        n = found ? end - at : n;
    }
    ucnv_close(converter);
}

static void repair_encoding(const char *text, int64_t length, weft_buf *out)
{
    bool plain = true;
    for (int64_t i = 0; i < length; i++)
        plain &= (unsigned char)text[i] < 0x80;
    weft_buf_append(out, "", 0);
    for (int i = 0; !plain && i < (int)(sizeof encodings / sizeof *encodings); i++)
        if (decode_as(encodings[i], text, length, out))
            return;
    if (plain)
        weft_buf_append(out, text, length);
    else
        decode_apart(text, length, out);
}

/* ---- characters ----------------------------------------------------------------------------- */

/* clang-format off */
static const entity ligatures[] = {
    {"\u0132", "IJ"}, {"\u0133", "ij"}, {"\u0149", "\u02bcn"},
    {"\u01c4", "D\u017d"}, {"\u01c5", "D\u017e"}, {"\u01c6", "d\u017e"},
    {"\u01c7", "LJ"}, {"\u01c8", "Lj"}, {"\u01c9", "lj"},
    {"\u01ca", "NJ"}, {"\u01cb", "Nj"}, {"\u01cc", "nj"},
    {"\u01f1", "DZ"}, {"\u01f2", "Dz"}, {"\u01f3", "dz"},
    {"\ufb00", "ff"}, {"\ufb01", "fi"}, {"\ufb02", "fl"}, {"\ufb03", "ffi"}, {"\ufb04", "ffl"},
    {"\ufb05", "\u017ft"}, {"\ufb06", "st"},
};
/* clang-format on */

static bool is_control(int32_t c)
{
    return c <= 8 || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
           (c >= 0x206a && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb);
}

/* Wide and narrow forms as the letters that they are; 0: another. */
static int32_t normal_width(int32_t c)
{
    UErrorCode error = U_ZERO_ERROR;
    const UNormalizer2 *nfkc = unorm2_getNFKCInstance(&error);
    UChar made[8];
    int32_t at = 0, one;
    if (c == 0x3000)
        return ' ';
    if (c < 0xff01 || c > 0xffef)
        return 0;
    const int32_t n = unorm2_getRawDecomposition(nfkc, c, made, 8, &error);
    if (U_FAILURE(error) || n < 1)
        return 0;
    U16_NEXT(made, at, n, one);
    return at == n ? one : 0;
}

static void repair_letter(int32_t c, const char *bytes, int64_t n, weft_buf *out)
{
    if (c >= 0x80 && c < 0xa0 && windows_1252[c - 0x80])
        c = windows_1252[c - 0x80];
    for (int i = 0; i < (int)(sizeof ligatures / sizeof *ligatures); i++)
        if ((int64_t)strlen(ligatures[i].name) == n &&
            !memcmp(ligatures[i].name, bytes, (size_t)n)) {
            weft_buf_append(out, ligatures[i].text, (int64_t)strlen(ligatures[i].text));
            return;
        }
    const int32_t width = normal_width(c);
    c = width ? width : c;
    if (c == 0x2bc || (c >= 0x2018 && c <= 0x201b))
        c = '\'';
    if (c >= 0x201c && c <= 0x201f)
        c = '"';
    if (c == 0x2028 || c == 0x2029 || c == 0x85)
        c = '\n';
    if (!is_control(c))
        weft_utf8_append(out, (uint32_t)c);
}

/* ESC [ numbers letter: what terminals obey. */
static int64_t terminal_escape(const char *at, int64_t left)
{
    int64_t n = 2;
    if (left < 3 || at[0] != 0x1b || at[1] != '[')
        return 0;
    while (n < left && (is_digit(at[n]) || at[n] == ';'))
        n++;
    return n < left && (at[n] | 32) >= 'a' && (at[n] | 32) <= 'z' ? n + 1 : 0;
}

static void repair_letters(const char *text, int64_t length, weft_buf *out)
{
    weft_buf_append(out, "", 0);
    for (int64_t at = 0, n; at < length; at += n) {
        const int32_t c = weft_text_next(text + at, length - at, &n);
        const int64_t escape = terminal_escape(text + at, length - at);
        if (c == '\r') {
            n = at + 1 < length && text[at + 1] == '\n' ? 2 : 1;
            weft_buf_append(out, "\n", 1);
        } else if (!escape) {
            repair_letter(c, text + at, n, out);
        }
        n = escape ? escape : n;
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* text = step(text) */
static void apply(clean_step *step, weft_buf *text)
{
    weft_buf made = {0};
    step(text->data ? text->data : "", text->len, &made);
    made.failed |= text->failed;
    weft_buf_free(text);
    *text = made;
}

static weft_status repair_once(weft_buf *line, bool entities_too)
{
    if (entities_too)
        apply(unescape_whole, line);
    apply(repair_encoding, line);
    apply(repair_letters, line);
    WEFT_TRY(weft_buf_check(line));
    return weft_text_compose(line);
}

/* One line, until nothing changes. */
static weft_status repair_line(weft_buf *line, bool entities_too)
{
    enum { MOST = 16 };
    for (int i = 0; i < MOST; i++) {
        weft_buf before = {0};
        weft_buf_append(&before, line->data ? line->data : "", line->len);
        const weft_status_code status = repair_once(line, entities_too);
        const bool same =
            before.len == line->len && !memcmp(before.data, line->data, (size_t)line->len);
        weft_buf_free(&before);
        WEFT_TRY(status);
        if (same)
            break;
    }
    return WEFT_OK;
}

weft_status weft_text_repair_damage(const char *text, int64_t length, weft_buf *out)
{
    weft_buf whole = {0};
    bool entities_too = true; /* until a tag shows that it is HTML, whose entities mean something */
    weft_status_code status = WEFT_OK;
    weft_text_repair(text, length, &whole);
    weft_buf_append(out, "", 0);
    for (int64_t from = 0, to; from < whole.len; from = to) {
        const char *end = memchr(whole.data + from, '\n', (size_t)(whole.len - from));
        weft_buf line = {0};
        to = end ? end - whole.data + 1 : whole.len;
        entities_too &= !memchr(whole.data + from, '<', (size_t)(to - from));
        weft_buf_append(&line, whole.data + from, to - from);
        const weft_status_code repaired = repair_line(&line, entities_too);
        weft_buf_append(out, line.data ? line.data : "", line.len);
        weft_buf_free(&line);
        WEFT_GO(repaired);
    }
    WEFT_GO(weft_buf_check(&whole));
    WEFT_GO(weft_buf_check(out));
out:
    weft_buf_free(&whole);
    return status;
}

static void join_blanks(const char *text, int64_t length, weft_buf *out)
{
    bool blank = false, begun = false;
    weft_buf_append(out, "", 0);
    for (int64_t at = 0, n; at < length; at += n) {
        const int32_t c = weft_text_next(text + at, length - at, &n);
        if (is_blank(c)) {
            blank = begun;
            continue;
        }
        if (blank)
            weft_buf_append(out, " ", 1);
        weft_buf_append(out, text + at, n);
        blank = false;
        begun = true;
    }
}

weft_status weft_text_clean_prompt(const char *text, int64_t length, bool repair, weft_buf *out)
{
    weft_buf made = {0};
    weft_status_code status = WEFT_OK;
    if (repair)
        WEFT_GO(weft_text_repair_damage(text, length, &made));
    else
        weft_text_repair(text, length, &made);
    for (int i = 0; i < 2; i++)
        apply(unescape, &made);
    apply(join_blanks, &made);
    weft_buf_append(out, made.data ? made.data : "", made.len);
    WEFT_GO(weft_buf_check(out));
out:
    weft_buf_free(&made);
    return status;
}
