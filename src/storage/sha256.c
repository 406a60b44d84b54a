#include "storage/sha256.h"

#include "base/hex.h"

#include <libavutil/hmac.h>
#include <libavutil/mem.h>
#include <libavutil/sha.h>

void weft_sha256_to_hex(const uint8_t digest[WEFT_SHA256_BYTES], char hex[WEFT_SHA256_HEX])
{
    weft_hex_write(digest, WEFT_SHA256_BYTES, hex);
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
