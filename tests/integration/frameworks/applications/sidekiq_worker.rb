# What Sidekiq does: the worker process requires this, the application enqueues it.

require "sidekiq"

ADDRESS = { url: "redis://#{ENV.fetch("FRAMEWORK_ADDRESS")}/0" }.freeze

Sidekiq.configure_server do |config|
  config.redis = ADDRESS
  # Each looks for what is due more often than by default.
  config.options[:poll_interval_average] = 0.2
end
Sidekiq.configure_client { |config| config.redis = ADDRESS }

class Add
  include Sidekiq::Worker

  def perform(*numbers)
    Sidekiq.redis { |client| client.rpush("done", numbers.sum) }
  end
end

class Urgent < Add
  sidekiq_options queue: "critical"
end

class SecondTime
  include Sidekiq::Worker
  sidekiq_options retry: 3
  sidekiq_retry_in { 1 }

  def perform
    raise "meant to fail once" if Sidekiq.redis { |client| client.incr("tried") } == 1

    Sidekiq.redis { |client| client.rpush("done", 7777) }
  end
end

class Fail
  include Sidekiq::Worker
  sidekiq_options retry: 0

  def perform
    raise "meant to fail"
  end
end
