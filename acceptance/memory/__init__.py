"""What Shards keep in memory; outside the certificate, since small models weigh too little."""
