//! SHA-256 after FIPS 180-4; its constants are computed, not copied.

/// The first 64 prime numbers.
fn primes() -> [u128; 64] {
    let mut found = [0; 64];
    let mut count = 0;
    let mut candidate = 2;
    while count < 64 {
        if found[..count].iter().all(|p| candidate % p != 0) {
            found[count] = candidate;
            count += 1;
        }
        candidate += 1;
    }
    found
}

/// The largest integer whose `power`-th power does not exceed `value`.
fn root(value: u128, power: u32) -> u128 {
    let (mut low, mut high) = (0u128, 1u128 << 44);
    while high - low > 1 {
        let middle = (low + high) / 2;
        match middle.checked_pow(power) {
            Some(p) if p <= value => low = middle,
            _ => high = middle,
        }
    }
    low
}

/// The first 32 bits of the fractional part of the square or cube root of `prime`.
fn fraction(prime: u128, power: u32) -> u32 {
    // The root of p · 2^(32·power) is the root of p, shifted left by 32 bits.
    root(prime << (32 * power), power) as u32
}

/// SHA-256 of `message` in lower-case hexadecimal.
pub fn sha256_hex(message: &[u8]) -> String {
    let primes = primes();
    let k = primes.map(|p| fraction(p, 3));
    let mut hash = [0u32; 8];
    for (h, p) in hash.iter_mut().zip(primes) {
        *h = fraction(p, 2);
    }
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks(64) {
        compress(&mut hash, block, &k);
    }
    hash.iter().map(|word| format!("{word:08x}")).collect()
}

fn compress(hash: &mut [u32; 8], block: &[u8], k: &[u32; 64]) {
    let mut w = [0u32; 64];
    for t in 0..64 {
        w[t] = if t < 16 {
            u32::from_be_bytes([block[4 * t], block[4 * t + 1], block[4 * t + 2], block[4 * t + 3]])
        } else {
            let (x, y) = (w[t - 15], w[t - 2]);
            let sigma0 = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
            let sigma1 = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
            sigma1.wrapping_add(w[t - 7]).wrapping_add(sigma0).wrapping_add(w[t - 16])
        };
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *hash;
    for t in 0..64 {
        let sum1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choose = (e & f) ^ (!e & g);
        let t1 = [sum1, choose, k[t], w[t]].into_iter().fold(h, u32::wrapping_add);
        let sum0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let t2 = sum0.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(t2));
    }
    for (state, word) in hash.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *state = state.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::sha256_hex;
    use crate::units::Digest;

    #[test]
    fn published_vectors() {
        for (message, digest) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(sha256_hex(message.as_bytes()), digest);
        }
    }

    #[test]
    fn agrees_with_the_product_around_every_padding_length() {
        let bytes: Vec<u8> = (0..300u32).map(|i| (i * 7 + 3) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(sha256_hex(&bytes[..length]), Digest::of(&bytes[..length]).to_string());
        }
    }
}
