#include "storage/sha256.h"

#include <libavutil/hmac.h>
#include <libavutil/mem.h>
#include <libavutil/sha.h>

void weft_sha256_to_hex(const uint8_t digest[WEFT_SHA256_BYTES], char hex[WEFT_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < WEFT_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[WEFT_SHA256_HEX - 1] = 0;
}

weft_status weft_sha256_hex(const void *data, int64_t bytes, char hex[WEFT_SHA256_HEX])
{
    uint8_t digest[WEFT_SHA256_BYTES];
    struct AVSHA *sha = av_sha_alloc();
    WEFT_TRY(WEFT_ALLOCATED(sha, "a checksum"));
    av_sha_init(sha, 256);
    av_sha_update(sha, data, (size_t)bytes);
    av_sha_final(sha, digest);
    av_free(sha);
    weft_sha256_to_hex(digest, hex);
    return WEFT_OK;
}

weft_status weft_hmac_sha256(const void *key, int64_t key_bytes, const void *data, int64_t bytes,
                             uint8_t mac[WEFT_SHA256_BYTES])
{
    AVHMAC *hmac = av_hmac_alloc(AV_HMAC_SHA256);
    WEFT_TRY(WEFT_ALLOCATED(hmac, "a signature"));
    av_hmac_calc(hmac, data, (unsigned)bytes, key, (unsigned)key_bytes, mac, WEFT_SHA256_BYTES);
    av_hmac_free(hmac);
    return WEFT_OK;
}
