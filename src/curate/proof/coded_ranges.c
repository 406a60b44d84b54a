#include "curate/proof/coded_ranges.h"

#include <string.h>

/* The last bytes of a tile end the entropy coder, and the last byte of a slice has its stop bit.
 * These bytes are unchanged. */
enum { ALTERED = 12, UNCHANGED = 4, MORE = 48 };

bool weft_coded_ranges_known(const AVCodecParameters *par)
{
    return par->codec_id == AV_CODEC_ID_H264 || par->codec_id == AV_CODEC_ID_HEVC ||
           par->codec_id == AV_CODEC_ID_VP9;
}

/* ---- NAL units ----------------------------------------------------------------------------- */

/* Bytes of the length before each NAL unit; 0: start codes separate units. */
static int length_bytes(const AVCodecParameters *par)
{
    const int at = par->codec_id == AV_CODEC_ID_H264 ? 4 : 21;
    const bool prefixed = par->extradata_size > at + 1 && par->extradata[0] == 1;
    return prefixed ? (par->extradata[at] & 3) + 1 : 0;
}

/* Position of the next start code (0 0 1), or `size`. */
static int start_code(const uint8_t *data, int at, int size)
{
    while (at + 3 <= size && !(data[at] == 0 && data[at + 1] == 0 && data[at + 2] == 1))
        at++;
    return at + 3 <= size ? at : size;
}

/* End of a unit's data without trailing zeros and cabac_zero_words (0 0 3). */
static int trimmed(const uint8_t *data, int begin, int end)
{
    for (;;) {
        while (end > begin && data[end - 1] == 0)
            end--;
        if (end - begin < 3 || data[end - 1] != 3 || data[end - 2] != 0 || data[end - 3] != 0)
            return end;
        end -= 3;
    }
}

static int coded_slices(const AVCodecParameters *par, const uint8_t *data, int size,
                        weft_coded_range *list, int most)
{
    const int prefix = length_bytes(par);
    int count = 0, at = prefix ? 0 : start_code(data, 0, size);
    while (count < most && at + (prefix ? prefix : 3) < size) {
        int begin = at + 3, end;
        if (prefix) {
            int64_t length = 0;
            for (int k = 0; k < prefix; k++)
                length = length << 8 | data[at + k];
            begin = at + prefix;
            if (length < 1 || length > size - begin)
                return 0;
            end = begin + (int)length;
        } else {
            end = start_code(data, begin, size);
        }
        const bool h264 = par->codec_id == AV_CODEC_ID_H264;
        const int type = h264 ? data[begin] & 31 : data[begin] >> 1 & 63;
        if (h264 ? type == 1 || type == 5 : type < 32)
            list[count++] = (weft_coded_range){.begin = begin,
                                               .end = trimmed(data, begin, end),
                                               .length_at = begin - prefix,
                                               .length_bytes = prefix};
        at = end;
    }
    return count;
}

/* ---- VP9 ----------------------------------------------------------------------------------- */

typedef struct bits {
    const uint8_t *data;
    int64_t at, count; /* bits read, and all bits; reads past the end give zeros */
} bits;

static int take(bits *b, int count)
{
    int value = 0;
    for (; count > 0; count--, b->at++)
        value = value << 1 | (b->at < b->count ? b->data[b->at / 8] >> (7 - b->at % 8) & 1 : 0);
    return value;
}

/* Skips `count` times one bit, and `more` further bits after a 1. */
static void skip_optional(bits *b, int count, int more)
{
    while (count-- > 0)
        if (take(b, 1))
            take(b, more);
}

/* Skips the colour configuration; `profile` 0 implies 4:2:0. */
static void skip_colours(bits *b, int profile)
{
    enum { SRGB = 7 };
    if (profile >= 2)
        take(b, 1); /* 10 or 12 bits */
    const int space = take(b, 3);
    if (space != SRGB)
        take(b, 1 + (profile & 1 ? 3 : 0)); /* range; subsampling and a zero */
    else if (profile & 1)
        take(b, 1);
}

/* Skips sizes, references and filter up to the probability contexts. Sets *width to the frame's if
 * the header has it. False: not a frame with its own data. */
static bool skip_references(bits *b, int *width)
{
    if (take(b, 2) != 2) /* frame marker */
        return false;
    int profile = take(b, 1);
    profile |= take(b, 1) << 1;
    if (profile == 3)
        take(b, 1);
    if (take(b, 1)) /* shows an earlier frame again */
        return false;
    const bool inter = take(b, 1), show_frame = take(b, 1), resilient = take(b, 1);
    const bool intra = !inter || (!show_frame && take(b, 1));
    if (inter && !resilient)
        take(b, 2); /* contexts that are reset */
    bool sized = false;
    if (intra) {
        take(b, 24); /* sync code */
        if (!inter || profile > 0)
            skip_colours(b, profile);
        if (inter)
            take(b, 8); /* replaced references */
    } else {
        take(b, 8 + 3 * 4); /* replaced references; three references, each with a sign */
        for (int k = 0; k < 3 && !sized; k++)
            sized = take(b, 1); /* same size as this reference */
    }
    if (!sized) {
        *width = take(b, 16) + 1;
        take(b, 16);
    }
    skip_optional(b, 1, 32); /* size of the display */
    if (!intra) {
        take(b, 1); /* precision of vectors */
        if (!take(b, 1))
            take(b, 2); /* the filter */
    }
    if (!resilient)
        take(b, 2);
    take(b, 2);
    return true;
}

static void skip_filters(bits *b)
{
    take(b, 6 + 3);               /* loop filter */
    if (take(b, 1) && take(b, 1)) /* filter changes by reference and mode */
        skip_optional(b, 4 + 2, 7);
    take(b, 8); /* quantiser, and three differences */
    skip_optional(b, 3, 5);
    if (!take(b, 1)) /* segments */
        return;
    if (take(b, 1)) { /* their map */
        skip_optional(b, 7, 8);
        if (take(b, 1))
            skip_optional(b, 3, 8);
    }
    if (take(b, 1)) { /* their features */
        static const int size[4] = {8 + 1, 6 + 1, 2, 0};
        take(b, 1);
        for (int k = 0; k < 8 * 4; k++)
            skip_optional(b, 1, size[k % 4]);
    }
}

/* Finds the tiles of one frame: uncompressed header, compressed header, then tiles. Each tile has
 * its size before it, except the last, which has the remaining bytes. */
static int tiles(const uint8_t *data, int begin, int end, int width, weft_coded_range *list,
                 int most)
{
    bits b = {data + begin, 0, 8 * (int64_t)(end - begin)};
    if (!skip_references(&b, &width))
        return 0;
    skip_filters(&b);
    int least = 0, greatest = 1, columns, rows;
    const int blocks = (width + 63) / 64;
    while ((64 << least) < blocks)
        least++;
    while (blocks >> greatest >= 4)
        greatest++;
    for (columns = least; columns < greatest - 1 && take(&b, 1);)
        columns++;
    rows = take(&b, 1);
    rows += rows ? take(&b, 1) : 0;
    const int header = take(&b, 16);
    int64_t at = begin + (b.at + 7) / 8 + header;
    int count = 0;
    if (header == 0 || at >= end)
        return 0;
    for (int left = 1 << (columns + rows); left > 0 && count < most; left--) {
        int64_t size = end - at;
        weft_coded_range range = {.length_at = (int)at};
        if (left > 1) {
            range.length_bytes = 4;
            if (size < 4)
                return 0;
            size = (int64_t)data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3];
            at += 4;
        }
        if (size < 1 || size > end - at)
            return 0;
        range.begin = (int)at;
        range.end = (int)(at += size);
        list[count++] = range;
    }
    return count;
}

/* Finds the tiles of the last frame of a packet, the one it shows. The frames' sizes follow the
 * frames. */
static int superframe_tiles(const uint8_t *data, int size, int width, weft_coded_range *list,
                            int most)
{
    const int marker = data[size - 1], frames = (marker & 7) + 1, bytes = (marker >> 3 & 3) + 1;
    const int index = 2 + frames * bytes;
    if ((marker & 0xe0) != 0xc0 || size < index || data[size - index] != marker)
        return tiles(data, 0, size, width, list, most);
    const int last = size - 1 - bytes;
    int64_t at = 0, length = 0;
    for (int k = 0; k < frames; k++) {
        at += length;
        length = 0;
        for (int i = 0; i < bytes; i++)
            length |= (int64_t)data[size - index + 1 + k * bytes + i] << (8 * i);
    }
    if (at + length != size - index)
        return 0;
    const int count = tiles(data, (int)at, (int)(at + length), width, list, most);
    for (int k = 0; k < count; k++) {
        list[k].frame_at = last;
        list[k].frame_bytes = bytes;
    }
    return count;
}

int weft_coded_ranges_find(const AVCodecParameters *par, const uint8_t *data, int size,
                           weft_coded_range *list, int most)
{
    if (size < 8)
        return 0;
    return par->codec_id == AV_CODEC_ID_VP9 ? superframe_tiles(data, size, par->width, list, most)
                                            : coded_slices(par, data, size, list, most);
}

/* ---- Other ends ---------------------------------------------------------------------------- */

/* Bytes that are not part of a start code or an escape. */
static uint8_t filler(int index)
{
    return (uint8_t)(5 + (index * 37 + 101) % 250);
}

AVPacket *weft_coded_range_altered(const AVPacket *packet, const weft_coded_range *range,
                                   int variant)
{
    AVPacket *copy = av_packet_clone(packet);
    if (!copy || av_packet_make_writable(copy) < 0) {
        av_packet_free(&copy);
        return NULL;
    }
    for (int k = range->end - UNCHANGED - ALTERED; k < range->end - UNCHANGED; k++)
        if (k > range->begin + UNCHANGED)
            copy->data[k] = filler(copy->data[k] + k + 11 * variant);
    return copy;
}

/* Adds `more` to an integer of `bytes` bytes; false: overflow. */
static bool add(uint8_t *at, int bytes, bool little, int more)
{
    for (int k = 0; k < bytes; k++) {
        uint8_t *digit = at + (little ? k : bytes - 1 - k);
        more += *digit;
        *digit = (uint8_t)more;
        more >>= 8;
    }
    return bytes == 0 || more == 0;
}

AVPacket *weft_coded_range_grown(const AVPacket *packet, const weft_coded_range *range)
{
    AVPacket *copy = av_packet_alloc();
    if (!copy || av_new_packet(copy, packet->size + MORE) < 0 ||
        av_packet_copy_props(copy, packet) < 0) {
        av_packet_free(&copy);
        return NULL;
    }
    memcpy(copy->data, packet->data, (size_t)range->end);
    for (int k = 0; k < MORE; k++)
        copy->data[range->end + k] = filler(k);
    memcpy(copy->data + range->end + MORE, packet->data + range->end,
           (size_t)(packet->size - range->end));
    if (!add(copy->data + range->length_at, range->length_bytes, false, MORE) ||
        !add(copy->data + range->frame_at + MORE, range->frame_bytes, true, MORE))
        av_packet_free(&copy);
    return copy;
}
